// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What holds for every schedule at every size, and what is refused.

#include "passes/schedule/library/Schedules.h"
#include "passes/schedule/library/Prove.h"
#include "passes/schedule/library/Transfers.h"
#include "test/runtime/Check.h"

using namespace piper::schedule;

static Table build(std::string_view name, int64_t stages, int64_t microbatches,
                   int64_t ranks) {
  std::string error;
  std::optional<Table> table =
      buildSchedule(name, {stages, microbatches, ranks}, error);
  if (!table)
    std::fprintf(stderr, "%s\n", error.c_str());
  CHECK(table);
  return *table;
}

static void expectError(std::string_view name, Sizes sizes,
                        const char *message) {
  std::string error;
  CHECK(!buildSchedule(name, sizes, error));
  if (error != message)
    std::fprintf(stderr, "%s\n", error.c_str());
  CHECK(error == message);
}

static void expectSound(const ScheduleInfo &info, const Table &table) {
  std::optional<Problem> problem = proveTable(table);
  if (problem)
    std::fprintf(stderr, "%s: %s\n", std::string(info.name).c_str(),
                 printProblem(table, *problem).c_str());
  CHECK(!problem);
}

/// Everything once, where it belongs, and no rank waits for ever, with and
/// without explicit transfers.
static void checkWhole(const ScheduleInfo &info, const Sizes &sizes) {
  Table table = build(info.name, sizes.stages, sizes.microbatches, sizes.ranks);
  expectSound(info, table);
  Table withTransfers = addTransfers(table);
  CHECK(hasTransfers(withTransfers) == (sizes.ranks > 1));
  expectSound(info, withTransfers);
  CHECK(countStages(table) == sizes.stages);
  CHECK(countMicrobatches(table) == sizes.microbatches);
  CHECK(static_cast<int64_t>(table.size()) == sizes.ranks);
  bool splits = false;
  for (const auto &[pair, rank] : findPlacement(table))
    CHECK(getRank(info.layout, sizes, pair.first, pair.second) ==
          static_cast<int64_t>(rank));
  for (const Row &row : table)
    for (const Cell &cell : row) {
      CHECK(!cell.empty());
      for (const Action &action : cell)
        splits |= action.kind == Kind::W;
    }
  if (!info.splitsBackward)
    CHECK(!splits);
}

static void checkAllSizes() {
  for (const ScheduleInfo &info : getSchedules())
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      if (info.layout == Layout::Bidirectional && ranks % 2)
        continue;
      for (int64_t perRank = 1; perRank <= 3; ++perRank) {
        bool fits = info.layout == Layout::Looped ||
                    perRank == getDefaultStages(info.name, ranks) / ranks;
        for (int64_t m = 1; fits && m <= 2 * ranks + 9; ++m)
          checkWhole(info, {perRank * ranks, m, ranks});
      }
    }
}

/// By hand from the eight steps: two ranks, no steps 3, 5 and 7 on the middle
/// ranks, which both ranks are.
static void checkDualPipeByHand() {
  CHECK(print(build("dualpipe", 2, 4, 2)) ==
        "rank 0: 0F0 1F2 0F1 1B2 (1F3;0B0)OVERLAP_F_B 1B3 0I1 0W1\n"
        "rank 1: 0F2 1F0 0F3 1B0 (1F1;0B2)OVERLAP_F_B 1B1 0I3 0W3\n");
}

/// Microbatches that do not come leave the order of the others as it is.
static void checkDualPipeLeavesOut() {
  CHECK(print(build("dualpipe", 2, 3, 2)) ==
        "rank 0: 0F0 1F2 0F1 1B2 0B0 0I1 0W1\n"
        "rank 1: 0F2 1F0 1B0 (1F1;0B2)OVERLAP_F_B 1B1\n");
}

static void checkRefusals() {
  expectError("zigzag", {2, 2, 2},
              "expected a schedule among gpipe 1f1b interleaved_1f1b "
              "looped_bfs zb_h1 zb_h2 interleaved_zb zbv dualpipe dualpipev, "
              "got zigzag");
  expectError("1f1b", {4, 8, 2},
              "expected one stage per rank for 1f1b, got 4 stages on 2 ranks");
  expectError("gpipe", {2, 0, 2},
              "expected at least 1 stage and 1 microbatch, got 2 and 0");
  expectError("zbv", {6, 8, 4},
              "expected two stages per rank for zbv, got 6 stages on 4 ranks");
  expectError("interleaved_1f1b", {6, 8, 4},
              "expected as many stages on every rank for interleaved_1f1b, got "
              "6 stages on 4 ranks; the nearest are 4 and 8 stages");
  expectError("looped_bfs", {3, 8, 4},
              "expected as many stages on every rank for looped_bfs, got 3 "
              "stages on 4 ranks; the nearest is 4 stages");
  expectError("dualpipe", {3, 8, 3},
              "expected an even number of ranks for dualpipe, got 3; the "
              "nearest are 2 and 4");
  expectError("1f1b", {int64_t(1) << 40, int64_t(1) << 40, int64_t(1) << 40},
              "expected at most 16777216 pairs of stage and microbatch, got "
              "1099511627776 stages and 1099511627776 microbatches");
}

int main() {
  checkAllSizes();
  checkDualPipeByHand();
  checkDualPipeLeavesOut();
  checkRefusals();
  return 0;
}
