// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- StateLayout.h - persistent memory of a class -------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_STATELAYOUT_H
#define PIPER_PASSES_PLAN_STATELAYOUT_H

#include "passes/plan/Communicators.h"
#include "passes/plan/RankClasses.h"
#include "llvm/ADT/MapVector.h"

namespace piper {

/// Where one class keeps a bucket, as byte offsets in its state space; -1 for
/// what it does not keep.
struct BucketStorage {
  BucketOp bucket;
  mlir::Type elementType;
  /// All parameters, or this rank's shard of them.
  int64_t parameters = -1;
  /// Sums of this rank's contributions, which outlive a run that does not
  /// reduce. Absent where each run reduces them (`shard_grads`).
  int64_t gradients = -1;
  /// This rank's part of the reduced gradient, where the optimizer is sharded.
  int64_t gradientShard = -1;
  llvm::SmallVector<int64_t> slots;

  bool isReplicated() { return bucket.getRanksAttr().size() > 1; }
  /// What a rank updates: everything, or its shard.
  int64_t getUpdatedElements() {
    return bucket.getShardOptimizer() ? bucket.getShardElements()
                                      : bucket.getPadded();
  }
  std::optional<int64_t> getOffset(mlir::FlatSymbolRefAttr state);
};

class StateLayout {
public:
  StateLayout(mlir::ModuleOp module, llvm::ArrayRef<int64_t> ranks);

  BucketStorage *lookup(mlir::FlatSymbolRefAttr bucket) {
    auto found = buckets.find(bucket.getAttr());
    return found == buckets.end() ? nullptr : &found->second;
  }
  /// [loss_sum, weight_sum] since gradients were last started afresh.
  int64_t getScale() const { return scale; }
  int64_t getBytes() const { return bytes; }

  /// Reserves memory.
  int64_t reserve(int64_t size);

  llvm::MapVector<mlir::StringAttr, BucketStorage> buckets;

private:
  int64_t scale = 0;
  int64_t bytes = 0;
};

/// Writes a `piper.plan.state` for every parameter, buffer, constant, moment
/// and gradient; moments and gradients of state `s` are called `s:slot` and
/// `s:grad`. A state that no node reads lies on the ranks of the first class.
void createStates(mlir::ModuleOp module, mlir::OpBuilder &builder,
                  Communicators &communicators,
                  llvm::MutableArrayRef<StateLayout> layouts,
                  llvm::ArrayRef<mlir::FlatSymbolRefAttr> classNames);

} // namespace piper

#endif // PIPER_PASSES_PLAN_STATELAYOUT_H
