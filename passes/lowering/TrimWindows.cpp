// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- TrimWindows.cpp - operands end where their last window ends --------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_TRIMWINDOWS
#include "passes/Passes.h.inc"

namespace {
/// The largest value of `expr` over loops of these extents, if it is a sum of
/// loops with positive strides: only then is its smallest value 0.
std::optional<int64_t> lastIndex(AffineExpr expr, ArrayRef<int64_t> extents) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return extents[dim.getPosition()] - 1;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  std::optional<int64_t> left = lastIndex(binary.getLHS(), extents);
  if (!left)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Mul) {
    auto stride = dyn_cast<AffineConstantExpr>(binary.getRHS());
    if (!stride || stride.getValue() < 1)
      return std::nullopt;
    return *left * stride.getValue();
  }
  std::optional<int64_t> right = lastIndex(binary.getRHS(), extents);
  if (expr.getKind() != AffineExprKind::Add || !right)
    return std::nullopt;
  return *left + *right;
}

bool hasUnitLoop(AffineExpr expr, ArrayRef<int64_t> extents) {
  return llvm::any_of(llvm::enumerate(extents), [&](auto loop) {
    return loop.value() == 1 && expr.isFunctionOfDim(loop.index());
  });
}

void trim(linalg::GenericOp op, OpOperand *operand, ArrayRef<int64_t> extents) {
  auto type = cast<RankedTensorType>(operand->get().getType());
  SmallVector<int64_t> sizes(type.getShape());
  for (auto [size, expr] :
       llvm::zip(sizes, op.getMatchingIndexingMap(operand).getResults())) {
    if (isa<AffineDimExpr>(expr) || !hasUnitLoop(expr, extents))
      continue;
    if (std::optional<int64_t> last = lastIndex(expr, extents))
      size = *last + 1;
  }
  if (ArrayRef(sizes) == type.getShape())
    return;
  OpBuilder builder(op);
  SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(sizes.size(), builder.getIndexAttr(1));
  SmallVector<OpFoldResult> ends =
      getAsIndexOpFoldResult(op.getContext(), sizes);
  operand->set(tensor::ExtractSliceOp::create(
      builder, op.getLoc(), operand->get(), offsets, ends, strides));
}

struct TrimWindows : public impl::TrimWindowsBase<TrimWindows> {
  void runOnOperation() override {
    getOperation().walk([](linalg::GenericOp op) {
      SmallVector<int64_t> extents = op.getStaticLoopRanges();
      if (!op.hasPureTensorSemantics() ||
          llvm::any_of(extents, ShapedType::isDynamic))
        return;
      for (OpOperand *operand : op.getDpsInputOperands())
        if (isa<RankedTensorType>(operand->get().getType()))
          trim(op, operand, extents);
    });
  }
};
} // namespace
} // namespace piper
