// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DropUnusedStreams.cpp - erase streams nobody names -----------------===//

#include "passes/Passes.h"

namespace piper {
#define GEN_PASS_DEF_DROPUNUSEDSTREAMS
#include "passes/Passes.h.inc"

namespace {
struct DropUnusedStreams
    : public impl::DropUnusedStreamsBase<DropUnusedStreams> {
  void runOnOperation() override {
    mlir::ModuleOp module = getOperation();
    for (StreamOp stream :
         llvm::make_early_inc_range(module.getOps<StreamOp>()))
      if (mlir::SymbolTable::symbolKnownUseEmpty(stream, module))
        stream.erase();
  }
};
} // namespace
} // namespace piper
