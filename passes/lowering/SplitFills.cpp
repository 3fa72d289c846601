// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- SplitFills.cpp - one fill and one empty tensor per use -------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_SPLITFILLS
#include "passes/Passes.h.inc"

namespace {
/// Gives every use of `op` after the first a copy of its own, just before it.
void splitUses(Operation *op) {
  for (OpOperand &use : llvm::make_early_inc_range(
           llvm::drop_begin(op->getResult(0).getUses()))) {
    OpBuilder builder(use.getOwner());
    use.set(builder.clone(*op)->getResult(0));
  }
}

/// A constant tensor of one value: the object would hold every element.
void fillIn(arith::ConstantOp constant) {
  auto value = cast<SplatElementsAttr>(constant.getValue());
  auto type = cast<RankedTensorType>(constant.getType());
  OpBuilder builder(constant);
  Location loc = constant.getLoc();
  Value scalar = arith::ConstantOp::create(
      builder, loc, cast<TypedAttr>(value.getSplatValue<Attribute>()));
  Value empty = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                        type.getElementType());
  constant.replaceAllUsesWith(
      linalg::FillOp::create(builder, loc, scalar, empty).getResult(0));
  constant.erase();
}

struct SplitFills : public impl::SplitFillsBase<SplitFills> {
  void runOnOperation() override {
    SmallVector<arith::ConstantOp> splats;
    getOperation().walk([&](arith::ConstantOp op) {
      if (isa<SplatElementsAttr>(op.getValue()) &&
          isa<RankedTensorType>(op.getType()))
        splats.push_back(op);
    });
    llvm::for_each(splats, fillIn);
    // Fills first: their copies are new uses of the empty tensors.
    SmallVector<Operation *> fills, empties;
    getOperation().walk([&](linalg::FillOp op) {
      if (op->getNumResults() == 1 && !op.getResult(0).use_empty())
        fills.push_back(op);
    });
    llvm::for_each(fills, splitUses);
    getOperation().walk([&](tensor::EmptyOp op) {
      if (!op->use_empty())
        empties.push_back(op);
    });
    llvm::for_each(empties, splitUses);
  }
};
} // namespace
} // namespace piper
