// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- UnusedTargets.cpp - targets MLIR names and Piper does not link -----===//
//
// mlir's initializeBackendsOnce() calls the initializers of every target that
// LLVM was configured with. Only X86 and NVPTX are linked; weak, so that an
// LLVM whose archives bring the others along still links.
//
//===----------------------------------------------------------------------===//

#define PIPER_UNUSED_TARGET(NAME)                                              \
  __attribute__((weak)) void LLVMInitialize##NAME##TargetInfo() {}             \
  __attribute__((weak)) void LLVMInitialize##NAME##Target() {}                 \
  __attribute__((weak)) void LLVMInitialize##NAME##TargetMC() {}               \
  __attribute__((weak)) void LLVMInitialize##NAME##AsmPrinter() {}             \
  __attribute__((weak)) void LLVMInitialize##NAME##AsmParser() {}

extern "C" {
PIPER_UNUSED_TARGET(AArch64)
PIPER_UNUSED_TARGET(ARM)
}
