// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Buckets.h - which states lie in one flat vector ----------*- C++ -*-===//

#ifndef PIPER_PASSES_DIRECTIVES_BUCKETS_H
#define PIPER_PASSES_DIRECTIVES_BUCKETS_H

#include "passes/directives/Filter.h"

namespace piper {

/// How the placed nodes of a module use one state.
struct StateUse {
  StateOp state;
  /// Device groups of the nodes that read it or contribute to its gradient, in
  /// the order of the first use, and the directives that replicate those nodes
  /// (null for a group of one rank).
  llvm::SmallVector<mlir::DenseI64ArrayAttr> groups;
  llvm::SmallVector<ReplicateOp> directives;
  mlir::FlatSymbolRefAttr optimizer;
  bool hasGradient = false;
  bool isWritten = false;
  /// Tags, without the microbatch, of the first node that reads it.
  mlir::DictionaryAttr chunk;

  /// Operations are handles whose accessors are not const.
  StateOp getState() const { return state; }
};

/// States in the order of their first use.
using StateUses = llvm::MapVector<mlir::StringAttr, StateUse>;

/// Looks at every graph. Fails with a diagnostic where a device group of
/// several ranks has no `replicate`, or two.
mlir::FailureOr<StateUses> collectStateUses(mlir::ModuleOp module);

/// The buckets of a module. A trainable state lies in one, shared by all groups
/// that use it; any other has an instance per group.
class Buckets {
public:
  /// Declares `piper.bucket`s for `uses`.
  Buckets(mlir::ModuleOp module, const mlir::SymbolTable &symbols,
          const StateUses &uses);

  /// The bucket that holds `state` on the ranks of `group`.
  BucketOp lookup(mlir::StringAttr state, mlir::DenseI64ArrayAttr group) const {
    return instances.lookup({state, group});
  }

  /// In the order in which they were declared.
  llvm::ArrayRef<BucketOp> getBuckets() const { return buckets; }

private:
  llvm::SmallVector<BucketOp> buckets;
  llvm::DenseMap<std::pair<mlir::Attribute, mlir::Attribute>, BucketOp>
      instances;
};

} // namespace piper

#endif // PIPER_PASSES_DIRECTIVES_BUCKETS_H
