// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ExpandConversions.cpp - bf16 by integer arithmetic -----------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_EXPANDCONVERSIONS
#include "passes/Passes.h.inc"

namespace {
struct ExpandConversions
    : public impl::ExpandConversionsBase<ExpandConversions> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    arith::populateExpandBFloat16Patterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
} // namespace piper
