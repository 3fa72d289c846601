// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Synchronize.h - order between streams --------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_SYNCHRONIZE_H
#define PIPER_PASSES_PLAN_SYNCHRONIZE_H

#include "passes/plan/Accesses.h"

namespace piper {

/// Where the receiver of each message stands in the order of the whole cluster.
class Receivers {
public:
  explicit Receivers(mlir::ModuleOp module);

  /// Whether message `number` of a channel is received before `position`, so
  /// that waiting for its acknowledgement there cannot hold up its receiver.
  bool isReceivedBefore(mlir::StringAttr entry, mlir::FlatSymbolRefAttr channel,
                        int64_t number, mlir::IntegerAttr position) const;

private:
  using Key = std::pair<mlir::Attribute, mlir::Attribute>;
  llvm::DenseMap<Key, llvm::SmallVector<int64_t>> positions;
};

/// Inserts the records, waits and releases that conflicting accesses of one
/// entry need beyond those that are there. Numbers of new events begin at
/// `numEvents`, which is raised.
mlir::LogicalResult synchronize(EntryOp entry, const PlanTables &tables,
                                const Receivers &receivers, int64_t &numEvents);

/// Erases waits and releases that others imply, and records that nobody waits
/// for.
void dropImplied(EntryOp entry);

/// All entries of all classes.
mlir::LogicalResult synchronize(mlir::ModuleOp module);

} // namespace piper

#endif // PIPER_PASSES_PLAN_SYNCHRONIZE_H
