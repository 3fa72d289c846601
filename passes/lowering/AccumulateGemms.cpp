// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- AccumulateGemms.cpp - sums of products without adding loops --------===//

#include "passes/lowering/AccumulateGemms.h"
#include "dialect/PiperDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

using namespace piper;

namespace {
/// Products that are summed by accumulation: every one but the first adds to
/// the one before.
using Chain = SmallVector<GemmOp>;

/// The chain that ends in `value`, where nothing else uses any member.
Chain chainOf(Value value) {
  Chain chain;
  while (auto gemm = value.getDefiningOp<GemmOp>()) {
    if (!value.hasOneUse())
      return {};
    chain.push_back(gemm);
    if (!gemm.getAccumulate())
      return chain;
    value = gemm.getOutput();
  }
  return {}; // adds to something that is no product
}

/// True for the elementwise sum of two tensors of one shape.
bool isSum(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      op.getNumParallelLoops() != op.getNumLoops() ||
      llvm::any_of(op.getIndexingMapsArray(),
                   [](AffineMap map) { return !map.isIdentity(); }))
    return false;
  Block *body = op.getBody();
  auto add = dyn_cast<arith::AddFOp>(body->front());
  auto yield = cast<linalg::YieldOp>(body->getTerminator());
  auto reads = [&](Value a, unsigned argument) {
    return a == body->getArgument(argument);
  };
  return add && add->getNextNode() == yield && yield.getOperand(0) == add &&
         ((reads(add.getLhs(), 0) && reads(add.getRhs(), 1)) ||
          (reads(add.getLhs(), 1) && reads(add.getRhs(), 0)));
}

/// The operand itself, or what it is a reshape of; null where that has other
/// users.
Value beforeReshape(Value operand, tensor::ExpandShapeOp &reshape) {
  reshape = operand.getDefiningOp<tensor::ExpandShapeOp>();
  if (!reshape)
    return operand;
  return operand.hasOneUse() ? reshape.getSrc() : Value();
}

/// Replaces `sum` where it adds the ends of two chains.
void convert(linalg::GenericOp sum) {
  tensor::ExpandShapeOp left, right;
  Value a = beforeReshape(sum.getInputs()[0], left);
  Value b = beforeReshape(sum.getInputs()[1], right);
  if (!a || !b || a == b || a.getType() != b.getType() ||
      bool(left) != bool(right) ||
      (left && left.getReassociation() != right.getReassociation()))
    return;
  Chain chain = chainOf(a), other = chainOf(b);
  if (chain.empty() || other.empty())
    return;
  llvm::append_range(chain, other);
  if (llvm::any_of(chain, [&](GemmOp gemm) {
        return gemm->getBlock() != sum->getBlock();
      }))
    return;
  llvm::sort(chain, [](GemmOp x, GemmOp y) { return x->isBeforeInBlock(y); });

  OpBuilder builder(chain.front());
  auto type = cast<RankedTensorType>(a.getType());
  Value running = tensor::EmptyOp::create(
      builder, sum.getLoc(), type.getShape(), type.getElementType());
  for (GemmOp gemm : chain) {
    gemm.setAccumulate(gemm != chain.front());
    gemm.getOutputMutable().assign(running);
    running = gemm->getResult(0);
  }
  if (left) {
    builder.setInsertionPoint(sum);
    running = tensor::ExpandShapeOp::create(
        builder, sum.getLoc(), sum->getResult(0).getType(), running,
        left.getReassociationIndices());
  }
  sum->getResult(0).replaceAllUsesWith(running);
  sum->erase();
  for (Operation *reshape : {left, right})
    if (reshape)
      reshape->erase();
}
} // namespace

void piper::accumulateGemms(func::FuncOp function) {
  SmallVector<linalg::GenericOp> sums;
  function.walk([&](linalg::GenericOp op) {
    if (isSum(op))
      sums.push_back(op);
  });
  // In program order: the sum of three products is found as two sums.
  llvm::for_each(sums, convert);
}
