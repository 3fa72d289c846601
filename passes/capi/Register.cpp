// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Register.cpp - everything a context of Piper knows -----------------===//

#include "dialect/PiperDialect.h"
#include "mlir/CAPI/IR.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "passes/Passes.h"
#include "passes/Pipelines.h"
#include "passes/capi/Piper.h"
#include "passes/lowering/Lowering.h"

void piperRegisterDialects(MlirDialectRegistry wrapped) {
  mlir::DialectRegistry &registry = *unwrap(wrapped);
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllGPUToLLVMIRTranslations(registry);
  registry.insert<piper::PiperDialect>();
  piper::registerBufferizationModels(registry);
}

void piperRegisterPasses() {
  static const bool once = [] {
    mlir::registerAllPasses();
    piper::registerPiperPasses();
    piper::registerPiperPipelines();
    piper::registerLoweringPipelines();
    return true;
  }();
  (void)once;
}
