// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables that must be refused, and where.

#include "passes/schedule/library/Prove.h"
#include "test/runtime/Check.h"
#include <initializer_list>

using namespace piper::schedule;

/// Rows of actions between blanks; a dot is a blank cell.
static Table parse(std::initializer_list<std::string> rows) {
  Table table;
  for (std::string row : rows) {
    table.emplace_back();
    row += " ";
    while (!row.empty()) {
      size_t end = row.find(' ');
      std::string word = row.substr(0, end);
      row.erase(0, end + 1);
      if (word.empty())
        continue;
      table.back().emplace_back();
      std::optional<Action> action = parseAction(word);
      CHECK(action || word == ".");
      if (action)
        table.back().back().push_back(*action);
    }
  }
  return table;
}

static void accept(std::initializer_list<std::string> rows) {
  Table table = parse(rows);
  std::optional<Problem> problem = proveTable(table);
  if (problem)
    std::fprintf(stderr, "%s\n", printProblem(table, *problem).c_str());
  CHECK(!problem);
}

static void refuse(std::initializer_list<std::string> rows, size_t rank,
                   size_t column, const char *message) {
  Table table = parse(rows);
  std::optional<Problem> problem = proveTable(table);
  CHECK(problem);
  CHECK_CONTAINS(printProblem(table, *problem), message);
  CHECK((problem->marks.at(0).position == Position{rank, column}));
}

/// Forward only, two ranks, stages 0 and 2 on the first: both send before they
/// receive. pytorch/pytorch#172668.
static const std::string looped =
    "1RF0 1F0 1SF0 1RF1 1F1 1SF1 3RF0 3F0 3RF1 3F1";

static void checkTransfers() {
  refuse({"0F0 0SF0 0F1 0SF1 2RF0 2F0 2SF0 2RF1 2F1 2SF1", looped}, 0, 3,
         "where a send waits for its receiver: rank 0 at 0SEND_F1 waits for "
         "1RECV_F1 of rank 1; rank 1 at 1SEND_F0 waits for 2RECV_F0 of rank 0");
  // One pair in the other order only moves it.
  refuse({"0F0 0SF0 0F1 2RF0 0SF1 2F0 2SF0 2RF1 2F1 2SF1", looped}, 0, 6,
         "rank 0 at 2SEND_F0 waits for 3RECV_F0 of rank 1; rank 1 at 1SEND_F1 "
         "waits for 2RECV_F1 of rank 0");
  // Every receive that lets the other rank go on comes first.
  accept({"0F0 0SF0 0F1 2RF0 0SF1 2F0 2RF1 2SF0 2F1 2SF1", looped});
  // The same shapes in another order on both sides would be silently wrong.
  refuse({"0F0 0SF0 0F1 0SF1 2RF0 2RF1 2F0 2SF0 2F1 2SF1",
          "1RF0 1F0 1RF1 1F1 1SF1 1SF0 3RF0 3F0 3RF1 3F1"},
         0, 4,
         "expected messages from rank 1 to rank 0 to be received in the order "
         "in which they are sent, got 1SEND_F1 taken for 2RECV_F0");
  refuse({"0F0 0SF0", "1F0"}, 1, 0, "expected 1RECV_F0 before 1F0 on rank 1");
  refuse({"0F0", "1RF0 1F0"}, 1, 0,
         "expected 0SEND_F0 on rank 0 to meet 1RECV_F0, got none");
  refuse({"0F0 1F0 0SF0"}, 0, 2,
         "expected a transfer to another rank, got 0SEND_F0");
  refuse({"0F0 0SF0 1RF0", "1F0"}, 0, 2,
         "expected 1RECV_F0 on the rank that computes it, got rank 0");
  refuse({"0F0 0SF0", "1RF0 1F0 1SF0"}, 1, 2,
         "expected a stage at the other end of 1SEND_F0, got 2 stages");
  // Both backwards before their sends.
  accept({"0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1",
          "1RF0 1F0 1RF1 1F1 1B0 1B1 1SB0 1SB1"});
}

static void checkDeadlocks() {
  refuse({"0F0 0B1 0F1 0B0", "1F0 1B0 1F1 1B1"}, 0, 1,
         "expected 0F1 before 0B1, got it after");
  refuse({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"}, 0, 1,
         "rank 0 at 0B0 waits for 1B0 of rank 1; rank 1 at 1F1 waits for 0F1 "
         "of rank 0");
  refuse({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"}, 0, 1,
         "           rank 0 rank 1\n"
         "step 0     0F0    1F1    <-- rank 1 1F1 waits for 0F1 of rank 0\n"
         "step 1     0B0    1B1    <-- rank 0 0B0 waits for 1B0 of rank 1\n"
         "step 2     0F1    1F0\n");
}

static void checkActions() {
  refuse({"0F0 0F0 0B0"}, 0, 1,
         "expected every action once, got 0F0 again (first at rank 0, step 0)");
  refuse({"0F0 0B0", "1F0 0B0 1B0"}, 1, 1, "expected stage 0 on one rank");
  refuse({"0F0 . 0W0 0I0"}, 0, 2, "expected 0I0 before 0W0, got it after");
  refuse({"0F0 0I0"}, 0, 1, "expected 0W0 after 0I0, got none");
  refuse({"0F0 0W0"}, 0, 1, "expected 0I0 before 0W0, got none");
  refuse({"0F0 0B0 0W0"}, 0, 2, "got both 0B0 and 0W0");
  refuse({"0F0 0F1 0B0"}, 0, 1, "expected a backward after 0F1");
  refuse({"0F0 0B0 0B1"}, 0, 2, "expected 0F1 before 0B1, got none");
  refuse({"0F0 0B0", "2F0 2B0"}, 1, 0,
         "expected stage 1 on some rank, got none although there is stage 2");
  refuse({"0F0 0B0 0F2 0B2"}, 0, 2, "expected microbatch 1, got none");
  refuse({"0F0 0B0 0F1 0B1", "1F0 1B0"}, 0, 2,
         "expected stage 1 to run microbatch 1 as other stages do");
  refuse({"0F2147483647 0B2147483647"}, 0, 0,
         "expected microbatch 0, got none");
  // Stage 1 has two copies, stage 0 has one.
  refuse({"0F0 1F0 1B0 0B0 0F1", "1F1 1B1 0B1"}, 1, 2,
         "expected stage 0 on one rank");
  refuse({"0F0 1F0 1B0 0B0 0F1 0B1", "1F1 1B1"}, 1, 0,
         "expected stage 1 on one rank, got it on rank 0 and rank 1");
}

/// Of many ranks a grid shows those that matter.
static void checkWideGrid() {
  Table table;
  for (int64_t rank = 0; rank < 100; ++rank)
    table.push_back({{{rank, Kind::F, 0}}, {{rank, Kind::B, 0}}});
  table[70][1] = {{70, Kind::F, 0}};
  std::string text = printProblem(table, *proveTable(table));
  CHECK_CONTAINS(text, "\n           rank 70\n"
                       "step 0     70F0    <-- rank 70 first\n"
                       "step 1     70F0    <-- rank 70\n");
}

static void checkOverlap() {
  Table table = parse({"0F0 0F1 0B0 0B1"});
  table[0][1].push_back({0, Kind::B, 0});
  table[0].erase(table[0].begin() + 2);
  CHECK(!proveTable(table));
  CHECK(print(table) == "rank 0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1\n");
  table[0][1][1].microbatch = 1;
  CHECK_CONTAINS(proveTable(table)->message,
                 "expected different microbatches or stages in one cell, got "
                 "0F1 and 0B1");
}

int main() {
  checkTransfers();
  checkDeadlocks();
  checkActions();
  checkOverlap();
  checkWideGrid();
  return 0;
}
