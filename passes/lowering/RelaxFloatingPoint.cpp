// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RelaxFloatingPoint.cpp - reorderable sums --------------------------===//
//
// Without nnan and ninf: masked softmax computes with infinities, and a NaN
// must reach the loss. Ops that carry flags already (the polynomials of
// piper-expand-math, whose order of operations is their accuracy) keep them.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_RELAXFLOATINGPOINT
#include "passes/Passes.h.inc"

namespace {
struct RelaxFloatingPoint
    : public impl::RelaxFloatingPointBase<RelaxFloatingPoint> {
  void runOnOperation() override {
    auto flags = arith::FastMathFlagsAttr::get(
        &getContext(),
        arith::FastMathFlags::reassoc | arith::FastMathFlags::nsz |
            arith::FastMathFlags::contract | arith::FastMathFlags::arcp);
    getOperation().walk([&](arith::ArithFastMathInterface op) {
      if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
               arith::NegFOp>(op.getOperation()))
        return;
      if (op.getFastMathFlagsAttr().getValue() == arith::FastMathFlags::none)
        op->setAttr(op.getFastMathAttrName(), flags);
    });
  }
};
} // namespace
} // namespace piper
