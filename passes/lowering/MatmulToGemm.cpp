// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- MatmulToGemm.cpp - matrix products by the kernel library -----------===//

#include "passes/Passes.h"
#include "passes/lowering/AccumulateGemms.h"
#include "passes/lowering/Conversions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_MATMULTOGEMM
#include "passes/Passes.h.inc"

namespace {
/// A matrix operand: `value`, or `value` with its last two dims exchanged.
struct Operand {
  Value value;
  bool transposed;
};

bool swapsLastTwo(ArrayRef<int64_t> permutation) {
  int64_t rank = permutation.size();
  if (rank < 2 || permutation[rank - 2] != rank - 1 ||
      permutation[rank - 1] != rank - 2)
    return false;
  for (int64_t i = 0; i < rank - 2; ++i)
    if (permutation[i] != i)
      return false;
  return true;
}

/// The source of a transpose of the last two dims, named or generic, or null.
Value transposeSource(Value value) {
  if (auto op = value.getDefiningOp<linalg::TransposeOp>())
    return swapsLastTwo(op.getPermutation()) ? op.getInput() : Value();
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumDpsInputs() != 1 ||
      generic.getNumDpsInits() != 1 ||
      generic.getNumParallelLoops() != generic.getNumLoops())
    return {};
  Block *body = generic.getBody();
  auto yield = cast<linalg::YieldOp>(body->getTerminator());
  if (&body->front() != yield.getOperation() ||
      yield.getOperand(0) != body->getArgument(0))
    return {};
  AffineMap in = generic.getIndexingMapsArray()[0];
  AffineMap out = generic.getIndexingMapsArray()[1];
  if (!in.isPermutation() || !out.isPermutation())
    return {};
  AffineMap map = in.compose(inversePermutation(out));
  SmallVector<int64_t> permutation;
  for (AffineExpr expr : map.getResults())
    permutation.push_back(cast<AffineDimExpr>(expr).getPosition());
  return swapsLastTwo(permutation) ? generic.getInputs()[0] : Value();
}

/// Looks through a transpose, also below a collapse of the leading dims.
Operand peelTranspose(OpBuilder &builder, Value value) {
  if (Value source = transposeSource(value))
    return {source, true};
  auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
  if (!collapse)
    return {value, false};
  SmallVector<ReassociationIndices> groups = collapse.getReassociationIndices();
  size_t count = groups.size();
  Value source = transposeSource(collapse.getSrc());
  if (!source || count < 2 || groups[count - 1].size() != 1 ||
      groups[count - 2].size() != 1)
    return {value, false};
  return {
      tensor::CollapseShapeOp::create(builder, value.getLoc(), source, groups),
      true};
}

bool isZeroFill(Value value) {
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    return matchPattern(fill.value(), m_AnyZeroFloat()) ||
           matchPattern(fill.value(), m_PosZeroFloat());
  DenseElementsAttr constant;
  return matchPattern(value, m_Constant(&constant)) && constant.isSplat() &&
         isa<FloatType>(constant.getElementType()) &&
         constant.getSplatValue<APFloat>().isZero();
}

bool hasStaticShape(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape();
}

/// f32, or bf16 summed in f32.
bool hasKernel(linalg::LinalgOp op) {
  Type lhs = getElementTypeOrSelf(op->getOperand(0));
  return (lhs.isF32() || lhs.isBF16()) &&
         getElementTypeOrSelf(op->getOperand(1)) == lhs &&
         getElementTypeOrSelf(op.getDpsInits()[0]).isF32();
}

/// A product whose only reader rounds it to bf16, maybe reshaped, is written
/// as bf16.
void narrow(GemmOp gemm) {
  if (gemm.getAccumulate() || !getElementTypeOrSelf(gemm.getLhs()).isBF16() ||
      !gemm->getResult(0).hasOneUse())
    return;
  SmallVector<Operation *> reshapes;
  Operation *reader = *gemm->getResult(0).user_begin();
  while (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(reader) &&
         reader->hasOneUse()) {
    reshapes.push_back(reader);
    reader = *reader->getResult(0).user_begin();
  }
  auto generic = dyn_cast<linalg::GenericOp>(reader);
  if (!getConversionSource<arith::TruncFOp>(generic) ||
      !getElementTypeOrSelf(generic->getResult(0)).isBF16())
    return;
  OpBuilder builder(gemm);
  auto narrowed = [](Value value) {
    return cast<RankedTensorType>(value.getType())
        .clone(BFloat16Type::get(value.getContext()));
  };
  auto type = narrowed(gemm->getResult(0));
  gemm.getOutputMutable().assign(tensor::EmptyOp::create(
      builder, gemm.getLoc(), type.getShape(), type.getElementType()));
  gemm->getResult(0).setType(type);
  for (Operation *op : reshapes)
    op->getResult(0).setType(narrowed(op->getResult(0)));
  generic->getResult(0).replaceAllUsesWith(generic.getInputs()[0]);
  generic->erase();
}

struct MatmulToGemm : public impl::MatmulToGemmBase<MatmulToGemm> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> products;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (isa<linalg::MatmulOp, linalg::BatchMatmulOp>(op.getOperation()))
        products.push_back(op);
    });
    for (linalg::LinalgOp op : products)
      convert(op);
    // Before fusion makes the sums part of other loops.
    accumulateGemms(getOperation());
    SmallVector<GemmOp> gemms;
    getOperation().walk([&](GemmOp op) { gemms.push_back(op); });
    llvm::for_each(gemms, narrow);
  }

  void convert(linalg::LinalgOp op) {
    Value output = op.getDpsInits()[0];
    if (op->getNumResults() != 1 || !hasKernel(op) || hasUserMaps(op) ||
        !llvm::all_of(op->getOperands(), hasStaticShape))
      return;
    OpBuilder builder(op);
    Operand lhs = peelTranspose(builder, op->getOperand(0));
    Operand rhs = peelTranspose(builder, op->getOperand(1));
    bool accumulate = !isZeroFill(output);
    if (!accumulate) {
      auto type = cast<RankedTensorType>(output.getType());
      output = tensor::EmptyOp::create(builder, op.getLoc(), type.getShape(),
                                       type.getElementType());
    }
    auto gemm = GemmOp::create(builder, op.getLoc(), output.getType(),
                               lhs.value, rhs.value, output, lhs.transposed,
                               rhs.transposed, accumulate);
    op->getResult(0).replaceAllUsesWith(gemm->getResult(0));
    op->erase();
  }

  /// linalg.matmul may carry other maps than those of its name.
  bool hasUserMaps(linalg::LinalgOp op) {
    if (auto matmul = dyn_cast<linalg::MatmulOp>(op.getOperation()))
      return matmul.hasUserDefinedMaps();
    return cast<linalg::BatchMatmulOp>(op.getOperation()).hasUserDefinedMaps();
  }
};
} // namespace
} // namespace piper
