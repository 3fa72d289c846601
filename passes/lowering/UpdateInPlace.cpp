// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- UpdateInPlace.cpp - elementwise results in the place of an operand -===//
//
// One-shot bufferization writes where the output operand says. So an operand
// that nothing reads afterwards becomes the output operand.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "dialect/PiperDialect.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_UPDATEINPLACE
#include "passes/Passes.h.inc"

namespace {
bool isReshape(Operation *op) {
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
}

/// What a value is a reshape of.
Value rootOf(Value value) {
  while (isReshape(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

/// True if `op` reads the memory of `value` last, and once.
bool readsLast(Operation *op, Value value, unsigned &reads) {
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isReshape(user))
      return readsLast(op, user->getResult(0), reads);
    if (user == op)
      return ++reads == 1;
    return user->getBlock() == op->getBlock() && user->isBeforeInBlock(op);
  });
}

/// Whether the memory is one of the function's own. What loops make for loops
/// is left alone: it may be kept for one row only (GroupRows).
bool isWritable(Value root) {
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function &&
           function.getArgAttr(argument.getArgNumber(), kDonatedAttr);
  }
  return isa<GemmOp, LibraryCallOp>(root.getDefiningOp());
}

bool mayOverwrite(Value value, Operation *op) {
  Value root = rootOf(value);
  unsigned reads = 0;
  return isWritable(root) && readsLast(op, root, reads);
}

/// Results of the function have a place already.
bool isReturned(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>() ||
           (isReshape(user) && isReturned(user->getResult(0)));
  });
}

struct UpdateInPlace : public impl::UpdateInPlaceBase<UpdateInPlace> {
  void runOnOperation() override {
    SmallVector<linalg::GenericOp> ops;
    for (Operation &op : getOperation().getOps())
      if (auto generic = dyn_cast<linalg::GenericOp>(op))
        ops.push_back(generic);
    llvm::for_each(ops, convert);
  }

  static void convert(linalg::GenericOp op) {
    if (op->getNumResults() != 1 ||
        op.getNumParallelLoops() != op.getNumLoops() ||
        !op.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>() ||
        !op.getRegionOutputArgs()[0].use_empty() ||
        isReturned(op->getResult(0)))
      return;
    AffineMap written = op.getIndexingMapsArray().back();
    if (!written.isPermutation())
      return;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      Value value = operand->get();
      if (value.getType() != op->getResult(0).getType() ||
          op.getMatchingIndexingMap(operand) != written ||
          !mayOverwrite(value, op))
        continue;
      takeOver(op, operand->getOperandNumber());
      return;
    }
  }

  /// Makes input `number` the output; the body reads it there.
  static void takeOver(linalg::GenericOp op, unsigned number) {
    Block *body = op.getBody();
    body->getArgument(number).replaceAllUsesWith(
        op.getRegionOutputArgs().front());
    body->eraseArgument(number);
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    maps.erase(maps.begin() + number);
    Value value = op->getOperand(number);
    op.getOutputsMutable().assign(value);
    op.getInputsMutable().erase(number);
    op.setIndexingMapsAttr(
        Builder(op.getContext()).getAffineMapArrayAttr(maps));
  }
};
} // namespace
} // namespace piper
