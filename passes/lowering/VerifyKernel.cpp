// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- VerifyKernel.cpp - is this module one compilable kernel? -----------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_VERIFYKERNEL
#include "passes/Passes.h.inc"

namespace {
bool hasMemoryLayout(Type element) {
  if (isa<Float32Type, Float64Type, BFloat16Type, Float16Type>(element))
    return true;
  auto integer = dyn_cast<IntegerType>(element);
  return integer && integer.isSignless() &&
         llvm::is_contained({1u, 8u, 16u, 32u, 64u}, integer.getWidth());
}

struct VerifyKernel : public impl::VerifyKernelBase<VerifyKernel> {
  void runOnOperation() override {
    func::FuncOp kernel = findKernel(getOperation());
    if (!kernel) {
      getOperation().emitError("expected one public function, got none");
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function == kernel)
        continue;
      function.emitError("expected one function, got another one")
              .attachNote(kernel.getLoc())
          << "the kernel is '" << kernel.getName() << "'";
      return signalPassFailure();
    }
    if (failed(verify(kernel)))
      signalPassFailure();
  }

  LogicalResult verify(func::FuncOp kernel) {
    if (!kernel.getBody().hasOneBlock())
      return kernel.emitError("expected a function of one block, got ")
             << kernel.getBody().getBlocks().size();
    for (auto [index, type] : llvm::enumerate(kernel.getArgumentTypes()))
      if (failed(verifyType(kernel, "argument", index, type, true)))
        return failure();
    for (auto [index, type] : llvm::enumerate(kernel.getResultTypes()))
      if (failed(verifyType(kernel, "result", index, type, false)))
        return failure();
    return success();
  }

  LogicalResult verifyType(func::FuncOp kernel, StringRef kind, size_t index,
                           Type type, bool memrefAllowed) {
    auto memref = dyn_cast<MemRefType>(type);
    auto shaped = dyn_cast<ShapedType>(type);
    if (!isa<RankedTensorType>(type) && !(memref && memrefAllowed))
      return kernel.emitError("expected ")
             << kind << " " << index << " to be a ranked tensor"
             << (memrefAllowed ? " or a memref" : "") << ", got " << type;
    if (!shaped.hasStaticShape())
      return kernel.emitError("expected ")
             << kind << " " << index << " to have a static shape, got " << type;
    if (memref && !memref.getLayout().isIdentity())
      return kernel.emitError("expected ")
             << kind << " " << index << " to be dense, got " << type;
    if (!hasMemoryLayout(shaped.getElementType()))
      return kernel.emitError("expected ")
             << kind << " " << index
             << " of f32, f64, bf16, f16, i64, i32, i16, i8 or i1, got "
             << type;
    return success();
  }
};
} // namespace
} // namespace piper
