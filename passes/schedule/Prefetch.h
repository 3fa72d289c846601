// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Prefetch.h - when sharded parameters are gathered --------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_PREFETCH_H
#define PIPER_PASSES_SCHEDULE_PREFETCH_H

#include "dialect/PiperDialect.h"
#include "llvm/ADT/DenseMap.h"

namespace piper {

/// Whether an operation gathers parameters: they are there when the step
/// begins, so nothing but the plan below says when it runs.
bool isPrefetch(mlir::Operation *op);

/// Gathers to issue before a node.
using PrefetchPlan =
    llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *>>;

/// For nodes in the order in which they run: what a node reads is gathered
/// before the node ahead of it in its group starts, and after the one before
/// that has ended, so that two nodes' parameters are whole at a time. A node
/// that reads a bucket which the node ahead of it reads too shares its gather;
/// the gathers that become superfluous are erased.
PrefetchPlan planPrefetches(llvm::ArrayRef<ComputeOp> nodes);

} // namespace piper

#endif // PIPER_PASSES_SCHEDULE_PREFETCH_H
