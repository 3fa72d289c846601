// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RelaxFloatingPoint.cpp - reorderable sums --------------------------===//
//
// Only what depends on the running value of a reduction may be reordered:
// elsewhere users mean what they write, as in (x + 12582912.0) - 12582912.0,
// which rounds, or 1 / -0.0. A product and a sum may become one operation.
//
// Without nnan and ninf: masked softmax computes with infinities, and a NaN
// must reach the loss. Ops that carry flags already (the polynomials of
// piper-expand-math, whose order of operations is their accuracy) keep them.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_RELAXFLOATINGPOINT
#include "passes/Passes.h.inc"

namespace {
/// The values in the bodies of reductions that depend on what is reduced so
/// far.
llvm::DenseSet<Value> findRunningValues(func::FuncOp function) {
  llvm::DenseSet<Value> running;
  function.walk([&](linalg::LinalgOp op) {
    if (op.getNumReductionLoops() == 0)
      return;
    Block *body = op.getBlock();
    for (OpOperand &output : op.getDpsInitsMutable())
      running.insert(op.getMatchingBlockArgument(&output));
    for (Operation &inner : *body)
      if (llvm::any_of(inner.getOperands(), [&](Value operand) {
            return running.contains(operand);
          }))
        running.insert_range(inner.getResults());
  });
  return running;
}

struct RelaxFloatingPoint
    : public impl::RelaxFloatingPointBase<RelaxFloatingPoint> {
  void runOnOperation() override {
    llvm::DenseSet<Value> running = findRunningValues(getOperation());
    auto attribute = [&](arith::FastMathFlags flags) {
      return arith::FastMathFlagsAttr::get(&getContext(), flags);
    };
    auto reorderable =
        attribute(arith::FastMathFlags::reassoc | arith::FastMathFlags::nsz |
                  arith::FastMathFlags::contract);
    auto ordered = attribute(arith::FastMathFlags::contract);
    getOperation().walk([&](arith::ArithFastMathInterface op) {
      if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
               arith::NegFOp>(op.getOperation()))
        return;
      if (op.getFastMathFlagsAttr().getValue() == arith::FastMathFlags::none)
        op->setAttr(op.getFastMathAttrName(),
                    running.contains(op->getResult(0)) ? reorderable : ordered);
    });
  }
};
} // namespace
} // namespace piper
