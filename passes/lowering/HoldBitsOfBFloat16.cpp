// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- HoldBitsOfBFloat16.cpp - values of bf16 become values of i16 -------===//

#include "passes/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_HOLDBITSOFBFLOAT16
#include "passes/Passes.h.inc"

namespace {
/// No arithmetic on bf16 is left, so its values are moved only.
struct HoldBitsOfBFloat16
    : public impl::HoldBitsOfBFloat16Base<HoldBitsOfBFloat16> {
  void runOnOperation() override {
    WalkResult walk = getOperation().walk([&](Operation *op) {
      if (auto function = dyn_cast<LLVM::LLVMFuncOp>(op))
        retypeFunction(function);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (BlockArgument argument : block.getArguments())
            argument.setType(bits(argument.getType()));
      return retype(op) ? WalkResult::advance() : WalkResult::interrupt();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    getOperation().walk([](LLVM::BitcastOp cast) {
      if (cast.getArg().getType() != cast.getType())
        return;
      cast.getResult().replaceAllUsesWith(cast.getArg());
      cast.erase();
    });
  }

  Type bits(Type type) {
    return type.isBF16() ? IntegerType::get(&getContext(), 16) : type;
  }

  bool retype(Operation *op) {
    bool changes = false;
    for (Value result : op->getResults()) {
      changes |= result.getType().isBF16();
      result.setType(bits(result.getType()));
    }
    if (!changes)
      return true;
    if (auto constant = dyn_cast<LLVM::ConstantOp>(op)) {
      auto value = dyn_cast<FloatAttr>(constant.getValue());
      if (!value) {
        op->emitError("expected a number of bf16, got ") << constant.getValue();
        return false;
      }
      constant.setValueAttr(
          IntegerAttr::get(IntegerType::get(&getContext(), 16),
                           value.getValue().bitcastToAPInt()));
      return true;
    }
    if (isa<LLVM::LoadOp, LLVM::BitcastOp, LLVM::SelectOp, LLVM::ZeroOp,
            LLVM::UndefOp, LLVM::PoisonOp, LLVM::CallOp>(op))
      return true;
    op->emitError("expected arithmetic on bf16 to be expanded");
    return false;
  }

  void retypeFunction(LLVM::LLVMFuncOp function) {
    LLVM::LLVMFunctionType type = function.getFunctionType();
    SmallVector<Type> inputs;
    for (Type input : type.getParams())
      inputs.push_back(bits(input));
    function.setFunctionType(LLVM::LLVMFunctionType::get(
        bits(type.getReturnType()), inputs, type.isVarArg()));
  }
};
} // namespace
} // namespace piper
