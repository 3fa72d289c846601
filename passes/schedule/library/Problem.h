// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Problem.h - what is wrong with a table, and where --------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_PROBLEM_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_PROBLEM_H

#include "passes/schedule/library/Table.h"

namespace piper::schedule {

/// A cell to point at, and what is said beside the arrow.
struct Mark {
  Position position;
  std::string note;
};

struct Problem {
  std::string message;
  /// The first one is where the problem is; others take part in it.
  std::vector<Mark> marks;
};

/// What ranks do, as text. Positions of marks count rows, not rank numbers.
struct Grid {
  std::vector<int64_t> ranks;
  std::vector<std::vector<std::string>> rows;
};

/// One line per step and one column per rank, with an arrow at every mark. Of a
/// long grid only the steps around the marks are shown.
std::string print(const Grid &grid, const std::vector<Mark> &marks);

/// The message, and the table as a grid.
std::string printProblem(const Table &table, const Problem &problem);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_PROBLEM_H
