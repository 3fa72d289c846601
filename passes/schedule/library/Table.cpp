// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Table.cpp - what every rank does, in order -------------------------===//

#include "passes/schedule/library/Table.h"
#include <algorithm>

using namespace piper::schedule;

std::string piper::schedule::print(const Cell &cell) {
  if (cell.empty())
    return "";
  if (cell.size() == 1)
    return print(cell.front());
  std::string text;
  for (const Action &action : cell)
    text += (text.empty() ? "(" : ";") + print(action);
  return text + ")OVERLAP_F_B";
}

std::string piper::schedule::print(const Table &table) {
  std::string text;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":";
    for (const Cell &cell : table[rank])
      if (!cell.empty())
        text += " " + print(cell);
    text += "\n";
  }
  return text;
}

template <typename Function>
static void forEachAction(const Table &table, Function function) {
  for (size_t rank = 0; rank < table.size(); ++rank)
    for (const Cell &cell : table[rank])
      for (const Action &action : cell)
        function(rank, action);
}

int64_t piper::schedule::countStages(const Table &table) {
  int64_t count = 0;
  forEachAction(table, [&](size_t, const Action &action) {
    count = std::max(count, action.stage + 1);
  });
  return count;
}

int64_t piper::schedule::countMicrobatches(const Table &table) {
  int64_t count = 0;
  forEachAction(table, [&](size_t, const Action &action) {
    count = std::max(count, action.microbatch + 1);
  });
  return count;
}

Placement piper::schedule::findPlacement(const Table &table) {
  Placement placement;
  forEachAction(table, [&](size_t rank, const Action &action) {
    if (isCompute(action.kind))
      placement.try_emplace({action.stage, action.microbatch}, rank);
  });
  return placement;
}

bool piper::schedule::hasTransfers(const Table &table) {
  bool found = false;
  forEachAction(table, [&](size_t, const Action &action) {
    found |= isTransfer(action.kind);
  });
  return found;
}
