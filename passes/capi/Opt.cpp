// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Opt.cpp - the piper-opt tool ---------------------------------------===//
//
// It lives in the shared library, so that the executable is a small stub on
// the library's one copy of MLIR.
//
//===----------------------------------------------------------------------===//

#include "mlir/CAPI/IR.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "passes/capi/Piper.h"
#include "llvm/Support/TargetSelect.h"

int piperOptMain(int argc, char **argv) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::InitializeNativeTargetAsmParser();
  piperRegisterPasses();
  mlir::DialectRegistry registry;
  piperRegisterDialects(wrap(&registry));
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Piper optimizer driver\n", registry));
}
