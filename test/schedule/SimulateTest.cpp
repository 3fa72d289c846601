// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makespans, bubbles and memory against the formulas of the papers.

#include "passes/schedule/library/Simulate.h"
#include "passes/schedule/library/Schedules.h"
#include "test/runtime/Check.h"
#include <algorithm>
#include <cmath>

using namespace piper::schedule;

static Table build(std::string_view name, int64_t stages, int64_t microbatches,
                   int64_t ranks) {
  std::string error;
  std::optional<Table> table =
      buildSchedule(name, {stages, microbatches, ranks}, error);
  CHECK(table);
  return *table;
}

static Times run(const Table &table, const Costs &costs = Costs()) {
  std::string error;
  std::optional<Times> times = simulate(table, costs, false, error);
  if (!times)
    std::fprintf(stderr, "%s\n", error.c_str());
  CHECK(times);
  return *times;
}

static bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

/// Published numbers at unit costs: F = I = W = 1, B = 2, free links.
static void expect(std::string_view name, int64_t stages, int64_t microbatches,
                   int64_t ranks, double makespan, double bubble,
                   std::vector<int64_t> peaks = {}) {
  Table table = build(name, stages, microbatches, ranks);
  Times times = run(table);
  if (times.makespan != makespan || times.bubble() != bubble)
    std::fprintf(stderr, "%s:\n%s%s", std::string(name).c_str(),
                 printTimes(times).c_str(),
                 printTimeline(table, times).c_str());
  CHECK(times.makespan == makespan);
  CHECK(times.bubble() == bubble);
  for (size_t rank = 0; rank < peaks.size(); ++rank)
    CHECK(times.ranks[rank].peakLive == peaks[rank]);
}

static void checkUnitCosts() {
  auto each = [](int64_t ranks, int64_t peak) {
    return std::vector<int64_t>(ranks, peak);
  };
  expect("gpipe", 4, 8, 4, 33, 9, each(4, 8));
  expect("1f1b", 4, 8, 4, 33, 9, {4, 3, 2, 1});
  expect("1f1b", 8, 20, 8, 81, 21);
  expect("interleaved_1f1b", 8, 8, 4, 57, 9, {11, 9, 7, 5});
  expect("interleaved_1f1b", 16, 16, 8, 117, 21);
  expect("dualpipe", 8, 20, 8, 66, 6, each(8, 9));
  expect("dualpipe", 4, 10, 4, 32, 2, each(4, 5));
  expect("dualpipev", 8, 10, 4, 66, 6, each(4, 9));
  expect("dualpipev", 16, 20, 8, 134, 14, each(8, 17));
}

/// Qi et al., table 2, with enough microbatches to fill the pipeline, and W no
/// longer than F or I.
static void checkZeroBubble() {
  for (const StageCosts &stage :
       {StageCosts{1, 2, 1, 1}, StageCosts{3, 5, 3, 2}, StageCosts{2, 5, 4, 1},
        StageCosts{3, 8, 5, 3}})
    for (int64_t p : {2, 4, 8}) {
      Costs costs;
      costs.stages = {stage};
      auto getBubble = [&](const char *name) {
        return run(build(name, p, 4 * p, p), costs).bubble();
      };
      double common = stage.forward + stage.inputGradient;
      CHECK(
          near(getBubble("1f1b"), (p - 1) * (stage.forward + stage.backward)));
      CHECK(
          near(getBubble("zb_h1"), (p - 1) * (common - stage.weightGradient)));
      CHECK(near(getBubble("zb_h2"),
                 (p - 1) * (common - 2 * stage.weightGradient)));
    }
  for (int64_t p : {2, 4, 8})
    for (int64_t m : {2 * p - 1, 2 * p, 3 * p + 1}) {
      Times times = run(build("zbv", 2 * p, m, p));
      CHECK(times.bubble() == 0);
      // As much as 1F1B keeps of chunks twice the size.
      for (const RankTimes &rank : times.ranks)
        CHECK(rank.peakLive <= 2 * p);
    }
}

/// How much is alive does not grow with the microbatches, except where all
/// forwards come first; ZB-H1 keeps as much everywhere as 1F1B on the first
/// rank does.
static void checkMemory() {
  for (const ScheduleInfo &info : getSchedules())
    for (int64_t p : {2, 4, 8}) {
      auto getPeaks = [&](int64_t microbatches) {
        std::vector<int64_t> peaks;
        int64_t stages = getDefaultStages(info.name, p);
        for (const RankTimes &rank :
             run(build(info.name, stages, microbatches, p)).ranks)
          peaks.push_back(rank.peakLive);
        return peaks;
      };
      bool grows = info.name == "gpipe" || info.name == "looped_bfs";
      CHECK((getPeaks(4 * p) != getPeaks(8 * p)) == grows);
      if (info.name == "zb_h1")
        CHECK(getPeaks(4 * p) == std::vector<int64_t>(p, p));
      if (info.name == "zb_h2")
        CHECK(getPeaks(4 * p) == std::vector<int64_t>(p, 2 * p - 1));
    }
}

/// Rounds of unequal size cost no more than equal ones.
static void checkUnequalRounds() {
  for (int64_t p : {2, 3, 4, 8})
    for (int64_t m = p; m <= 4 * p; ++m) {
      CHECK(run(build("interleaved_1f1b", 2 * p, m, p)).bubble() ==
            3 * (p - 1));
      CHECK(run(build("interleaved_zb", 2 * p, m, p)).bubble() == p - 1);
    }
}

/// Two stages, one microbatch: F0 takes 1, its message 3 + 2, and so on.
static void checkLinksAndStages() {
  Costs costs;
  costs.stages = {{1, 2, 1, 1}, {10, 20, 10, 10}};
  costs.latency = 3;
  costs.transfer = 2;
  Times times = run(build("gpipe", 2, 1, 2), costs);
  CHECK(times.makespan == 1 + 5 + 10 + 20 + 5 + 2);
  CHECK(times.ranks[0].bubble() == 5 + 10 + 20 + 5);
  CHECK(times.ranks[1].bubble() == 0);
  CHECK(times.cells[1][0].start == 6);
  // Two messages share the link one after the other; latencies overlap.
  times = run(build("gpipe", 2, 2, 2), costs);
  CHECK(times.cells[1][0].start == 6);
  costs.stages = {{0, 0, 0, 0}};
  times = run(build("gpipe", 2, 2, 2), costs);
  CHECK(times.cells[1][0].start == 5);
  CHECK(times.cells[1][1].start == 7);
}

/// A send that waits keeps its rank until the receiver has begun.
static void checkWaitingSends() {
  Table table;
  for (const char *row : {"0F0 0SF0 0F1 0SF1", "1RF0 1F0 1RF1 1F1"}) {
    table.emplace_back();
    std::string text = row;
    for (size_t i = 0; i < text.size();) {
      size_t end = std::min(text.find(' ', i), text.size());
      table.back().push_back({*parseAction(text.substr(i, end - i))});
      i = end + 1;
    }
  }
  Costs costs;
  costs.stages = {{1, 2, 1, 1}, {5, 2, 1, 1}, {1, 1, 1, 1}};
  std::string error;
  CHECK(!simulate(table, costs, false, error));
  CHECK_CONTAINS(error, "expected the costs of 2 stages, got those of 3");
  costs.stages.pop_back();
  CHECK(simulate(table, costs, false, error)->cells[0][3].end == 2);
  CHECK(simulate(table, costs, true, error)->cells[0][3].end == 6);
  costs.latency = -1;
  CHECK(!simulate(table, costs, true, error));
  CHECK_CONTAINS(error, "expected costs from 0 to 1e18, got -1");
}

static void checkText() {
  Table table = build("dualpipev", 4, 4, 2);
  Times times = run(build("1f1b", 2, 2, 2));
  CHECK(printTimeline(build("1f1b", 2, 2, 2), times) ==
        "rank 0 | 0F0 0F1         0B0----     0B1----\n"
        "rank 1 |     1F0 1B0---- 1F1 1B1----\n");
  CHECK_CONTAINS(printTimeline(table, run(table)), " 0F3|3B1---- ");
  CHECK_CONTAINS(printTimes(times), "makespan 9, bubble 3\n");
}

int main() {
  checkUnitCosts();
  checkZeroBubble();
  checkMemory();
  checkUnequalRounds();
  checkLinksAndStages();
  checkWaitingSends();
  checkText();
  return 0;
}
