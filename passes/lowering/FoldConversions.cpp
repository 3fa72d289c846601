// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- FoldConversions.cpp - values that need not be rounded --------------===//
//
// The importer has every operation round its result. Where the next one widens
// it again, the value that was rounded serves: between operations of one
// function nothing is lost by more precision.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/lowering/Conversions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_FOLDCONVERSIONS
#include "passes/Passes.h.inc"

namespace {
/// Reshapes from a conversion's result back to that conversion, the last first.
using Reshapes = SmallVector<Operation *>;

/// The value that `value` is a rounded, reshaped copy of, or null.
Value sourceOfTruncation(Value value, Reshapes &reshapes) {
  while (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
      value.getDefiningOp())) {
    reshapes.push_back(value.getDefiningOp());
    value = value.getDefiningOp()->getOperand(0);
  }
  return getConversionSource<arith::TruncFOp>(value);
}

/// `value` with the reshapes applied, in its own element type.
Value reshape(OpBuilder &builder, Value value, const Reshapes &reshapes) {
  Type element = getElementTypeOrSelf(value);
  for (Operation *op : llvm::reverse(reshapes)) {
    IRMapping mapping;
    mapping.map(op->getOperand(0), value);
    Operation *copy = builder.clone(*op, mapping);
    auto type = cast<RankedTensorType>(copy->getResult(0).getType());
    copy->getResult(0).setType(type.clone(element));
    value = copy->getResult(0);
  }
  return value;
}

/// Whole tensors that are rounded and widened again.
void foldTensors(linalg::GenericOp op) {
  Value input = getConversionSource<arith::ExtFOp>(op);
  if (!input)
    return;
  Reshapes reshapes;
  Value source = sourceOfTruncation(input, reshapes);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (!source || getElementTypeOrSelf(source) != type.getElementType())
    return;
  OpBuilder builder(op);
  op->getResult(0).replaceAllUsesWith(reshape(builder, source, reshapes));
  op->erase();
}

/// Elements that are rounded and widened again inside one loop.
void foldElements(arith::ExtFOp op) {
  auto truncation = op.getIn().getDefiningOp<arith::TruncFOp>();
  if (truncation && truncation.getIn().getType() == op.getType()) {
    op.getResult().replaceAllUsesWith(truncation.getIn());
    op.erase();
  }
}

struct FoldConversions : public impl::FoldConversionsBase<FoldConversions> {
  void runOnOperation() override {
    SmallVector<linalg::GenericOp> generics;
    SmallVector<arith::ExtFOp> extensions;
    getOperation().walk([&](linalg::GenericOp op) { generics.push_back(op); });
    getOperation().walk([&](arith::ExtFOp op) { extensions.push_back(op); });
    llvm::for_each(extensions, foldElements);
    llvm::for_each(generics, foldTensors);
  }
};
} // namespace
} // namespace piper
