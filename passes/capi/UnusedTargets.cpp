// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- UnusedTargets.cpp - targets MLIR names and Piper does not link -----===//
//
// mlir's initializeBackendsOnce() calls the initializers of every target that
// LLVM was configured with. Only X86 and NVPTX are linked; CMake lists the
// rest.
//
//===----------------------------------------------------------------------===//

#define PIPER_UNUSED_TARGET(NAME)                                              \
  void LLVMInitialize##NAME##TargetInfo() {}                                   \
  void LLVMInitialize##NAME##Target() {}                                       \
  void LLVMInitialize##NAME##TargetMC() {}                                     \
  void LLVMInitialize##NAME##AsmPrinter() {}                                   \
  void LLVMInitialize##NAME##AsmParser() {}

extern "C" {
#include "passes/capi/UnusedTargets.def"
}
