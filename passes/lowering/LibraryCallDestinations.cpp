// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- LibraryCallDestinations.cpp - tensors for calls to write to --------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_LIBRARYCALLDESTINATIONS
#include "passes/Passes.h.inc"

namespace {
struct LibraryCallDestinations
    : public impl::LibraryCallDestinationsBase<LibraryCallDestinations> {
  void runOnOperation() override {
    getOperation().walk([](LibraryCallOp call) {
      if (!call.getOutputs().empty() || call.getNumResults() == 0)
        return;
      OpBuilder builder(call);
      for (Type type : call.getResultTypes()) {
        auto tensor = cast<RankedTensorType>(type);
        call.getOutputsMutable().append(
            tensor::EmptyOp::create(builder, call.getLoc(), tensor.getShape(),
                                    tensor.getElementType())
                .getResult());
      }
    });
  }
};
} // namespace
} // namespace piper
