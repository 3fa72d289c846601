// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Table.h - what every rank does, in order -----------------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_TABLE_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_TABLE_H

#include "passes/schedule/library/Action.h"
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace piper::schedule {

/// One action; or several that may run at the same time (a forward beside the
/// backward of another microbatch); or none: a blank.
using Cell = std::vector<Action>;
using Row = std::vector<Cell>;

/// Row r holds what rank r does, in order. Where each stage lives, and how many
/// there are, follows from it.
using Table = std::vector<Row>;

/// A cell of a table.
struct Position {
  size_t rank, column;

  bool operator==(const Position &other) const {
    return rank == other.rank && column == other.column;
  }
};

/// As torch writes it: `2F0`, `(0F3;3B1)OVERLAP_F_B`, or nothing.
std::string print(const Cell &cell);

/// One line per rank: `rank 0: 0F0 0F1 0B0 0B1`. Blanks are left out.
std::string print(const Table &table);

/// The numbers of stages, microbatches and cells that a table has anything of.
int64_t countStages(const Table &table);
int64_t countMicrobatches(const Table &table);

/// Which rank runs a stage on a microbatch: by microbatch, since a stage may
/// have two copies (DualPipe).
using Placement = std::map<std::pair<int64_t, int64_t>, size_t>;
Placement findPlacement(const Table &table);

/// Whether any rank sends or receives explicitly.
bool hasTransfers(const Table &table);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_TABLE_H
