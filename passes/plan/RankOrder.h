// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RankOrder.h - what happens before what, over all ranks ---*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_RANKORDER_H
#define PIPER_PASSES_PLAN_RANKORDER_H

#include "passes/plan/Accesses.h"
#include <map>

namespace piper {

/// Happens-before over all ranks of one entry, for sends that do not wait. An
/// answer that came back through other ranks tells that a message has arrived
/// as well as a release does. Clocks see one rank and are faster; this is asked
/// where they can't tell.
class RankOrder {
public:
  RankOrder(llvm::ArrayRef<EntryOp> entries, const PlanTables &tables)
      : entries(entries), tables(tables) {}

  /// Whether on every rank of their class `before` is done with its memory when
  /// `after` begins.
  bool isOrdered(ActionOpInterface before, ActionOpInterface after);

private:
  struct Edge {
    unsigned to;
    /// Null for one that is there in every run.
    mlir::StringAttr when;
  };

  void build();
  void addEdge(unsigned from, unsigned to, mlir::StringAttr when = {});
  bool isReachable(unsigned from, unsigned to, mlir::StringAttr when);

  llvm::SmallVector<EntryOp> entries;
  const PlanTables &tables;
  bool isBuilt = false;
  std::vector<llvm::SmallVector<Edge, 2>> successors;
  /// By rank: the node at which each action begins, and that at which it is
  /// done with its memory.
  std::map<int64_t, llvm::DenseMap<mlir::Operation *, unsigned>> begins, ends;
};

} // namespace piper

#endif // PIPER_PASSES_PLAN_RANKORDER_H
