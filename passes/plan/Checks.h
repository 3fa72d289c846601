// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Checks.h - proofs about plans ----------------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_CHECKS_H
#define PIPER_PASSES_PLAN_CHECKS_H

#include "passes/plan/RankOrder.h"
#include "llvm/ADT/MapVector.h"

namespace piper {

/// Messages and collectives of one entry, over all classes.
class Traffic {
public:
  Traffic(llvm::ArrayRef<EntryOp> entries, const PlanTables &tables);

  /// Every receive meets a send of as many bytes, every member of a group
  /// issues the same collectives in the same order, and a class uses a
  /// communicator from one stream.
  mlir::LogicalResult checkMatching();

  /// Happens-before over all classes has no cycle; `sendsWait`: a send ends
  /// only when its receive begins.
  mlir::LogicalResult checkAcyclic(bool sendsWait);

private:
  struct PerClass {
    EntryOp entry;
    llvm::ArrayRef<int64_t> ranks;
    llvm::SmallVector<ActionOpInterface> actions;
    /// By communicator.
    llvm::MapVector<mlir::Attribute, llvm::SmallVector<unsigned>> sends,
        receives, collectives;
  };

  PerClass *getClassOf(int64_t rank);
  /// Index of the class at the other end of a channel, from a member's view.
  PerClass *getPeer(PerClass &one, mlir::FlatSymbolRefAttr channel,
                    unsigned side);
  mlir::LogicalResult checkMessages(PerClass &receiver);
  mlir::LogicalResult checkCollectives(PerClass &one);
  mlir::LogicalResult checkStreams(PerClass &one);

  const PlanTables &tables;
  std::vector<PerClass> classes;
  llvm::DenseMap<int64_t, unsigned> classOfRank;
};

/// In one entry of one class: conflicting accesses are ordered, values in the
/// arena are written before they are read and are those that the graph says,
/// every access lies in a buffer that is live, and buffers that are live at the
/// same time do not overlap.
mlir::LogicalResult checkMemory(EntryOp entry, const PlanTables &tables,
                                RankOrder &order);

} // namespace piper

#endif // PIPER_PASSES_PLAN_CHECKS_H
