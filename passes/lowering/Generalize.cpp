// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Generalize.cpp - named linalg ops as generics ----------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_GENERALIZE
#include "passes/Passes.h.inc"

namespace {
struct Generalize : public impl::GeneralizeBase<Generalize> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> named;
    getOperation().walk([&](linalg::LinalgOp op) {
      // Later passes look for fills, and fusion folds them.
      if (!isa<linalg::GenericOp, linalg::FillOp>(op.getOperation()))
        named.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : named) {
      rewriter.setInsertionPoint(op);
      // Ops that have no generic form lower to loops as they are.
      (void)linalg::generalizeNamedOp(rewriter, op);
    }
  }
};
} // namespace
} // namespace piper
