//===- LibraryKernels.h - Signatures of the kernel library ------*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_DIALECT_LIBRARYKERNELS_H
#define PIPER_DIALECT_LIBRARYKERNELS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace piper {

/// One operand or result: its element type and its number of elements as a
/// product of params, e.g. {"f32", "B H T D"}.
struct KernelOperand {
  llvm::StringRef elementType;
  llvm::StringRef extents;
};

/// What `piper.library_call` may call and with which operands.
struct KernelSignature {
  llvm::StringRef symbol;
  /// Names of the params, in the order of the `imm` array.
  llvm::StringRef params;
  bool hasScale;
  llvm::SmallVector<KernelOperand> inputs;
  llvm::SmallVector<KernelOperand> outputs;
};

llvm::ArrayRef<KernelSignature> kernelSignatures();

/// The signature of `symbol`, or null.
const KernelSignature *findKernelSignature(llvm::StringRef symbol);

} // namespace piper

#endif // PIPER_DIALECT_LIBRARYKERNELS_H
