// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PackedEntry.cpp - void name(void *const *args) ---------------------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_PACKEDENTRY
#include "passes/Passes.h.inc"

namespace {
struct PackedEntry : public impl::PackedEntryBase<PackedEntry> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp kernel;
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      if (function.isExternal())
        continue;
      if (function->hasAttr(kInputsAttr))
        kernel = function;
      else // A nest or a report: compiled apart, never copied into its caller.
        function.setNoInline(true);
      function.setLinkage(LLVM::Linkage::Internal);
      function.setNoUnwind(true);
    }
    if (!kernel) {
      getOperation().emitError("expected a kernel function in the LLVM "
                               "dialect, got none");
      return signalPassFailure();
    }
    for (Type type : kernel.getFunctionType().getParams())
      if (!isa<LLVM::LLVMPointerType>(type)) {
        kernel.emitError("expected pointer arguments, got ") << type;
        return signalPassFailure();
      }
    addEntry(kernel);
  }

  void addEntry(LLVM::LLVMFuncOp kernel) {
    OpBuilder builder(kernel);
    Location loc = kernel.getLoc();
    auto pointer = LLVM::LLVMPointerType::get(&getContext());
    std::string name = kernel.getName().str();
    kernel.setName(name + ".body");
    auto entry = LLVM::LLVMFuncOp::create(
        builder, loc, name,
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(&getContext()),
                                    {pointer}));
    entry.setNoUnwind(true);
    for (StringRef attribute : {StringRef(kInputsAttr), StringRef(kResultsAttr),
                                StringRef(kWorkspaceAttr)})
      if (Attribute value = kernel->removeAttr(attribute))
        entry->setAttr(attribute, value);
    Block *body = entry.addEntryBlock(builder);
    builder.setInsertionPointToStart(body);
    SmallVector<Value> arguments;
    for (unsigned i = 0; i < kernel.getNumArguments(); ++i) {
      Value slot = LLVM::GEPOp::create(
          builder, loc, pointer, pointer, body->getArgument(0),
          ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
      arguments.push_back(LLVM::LoadOp::create(builder, loc, pointer, slot));
    }
    LLVM::CallOp::create(builder, loc, kernel, arguments);
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }
};
} // namespace
} // namespace piper
