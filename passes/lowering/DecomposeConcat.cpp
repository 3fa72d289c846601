// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DecomposeConcat.cpp - concatenation as insertions ------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_DECOMPOSECONCAT
#include "passes/Passes.h.inc"

namespace {
struct DecomposeConcat : public impl::DecomposeConcatBase<DecomposeConcat> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    tensor::populateDecomposeTensorConcatPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
} // namespace piper
