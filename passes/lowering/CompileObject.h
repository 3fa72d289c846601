// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CompileObject.h - from MLIR text to an object file -------*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_COMPILEOBJECT_H
#define PIPER_PASSES_LOWERING_COMPILEOBJECT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"
#include <cstdint>
#include <string>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace piper {

/// The processor to compile for. An empty or "native" cpu is the host's.
struct TargetSpec {
  std::string cpu;
  /// Comma-separated, as in "+avx2,-avx512f".
  std::string features;
  unsigned optLevel = 2;
};

/// An x86-64 ELF object and what its caller must know.
struct CompiledObject {
  std::string bytes;
  std::string symbol;
  int64_t inputs = 0;
  int64_t results = 0;
  int64_t workspaceBytes = 0;
  /// How much it computes, in multiply-adds: of two kernels, how much longer
  /// one takes.
  double work = 0;
  TargetSpec target;
};

TargetSpec hostTarget();

/// Compiles the kernel module `text`. On failure `error` has the diagnostics.
/// Thread-safe: every call has its own contexts, which know `dialects`.
llvm::LogicalResult compileObject(const mlir::DialectRegistry &dialects,
                                  llvm::StringRef text, TargetSpec target,
                                  CompiledObject &object, std::string &error);

} // namespace piper

#endif // PIPER_PASSES_LOWERING_COMPILEOBJECT_H
