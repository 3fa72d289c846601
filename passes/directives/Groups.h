// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Groups.h - device groups and streams ---------------------*- C++ -*-===//

#ifndef PIPER_PASSES_DIRECTIVES_GROUPS_H
#define PIPER_PASSES_DIRECTIVES_GROUPS_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace piper {

/// The stream that compute, accumulates and updates run on.
inline constexpr llvm::StringLiteral computeStream = "compute";

/// Number of ranks of the module's mesh; 1 without a mesh.
int64_t getNumRanks(mlir::ModuleOp module);

/// The name of a stream, which is declared where the module lacks it.
mlir::FlatSymbolRefAttr getOrCreateStream(mlir::ModuleOp module,
                                          llvm::StringRef name);

/// `ranks` as a sorted attribute.
mlir::DenseI64ArrayAttr getSortedRanks(mlir::MLIRContext *context,
                                       llvm::ArrayRef<int64_t> ranks);

/// Whether every rank of `ranks` is in `devices`.
bool isCovered(llvm::ArrayRef<int64_t> ranks, llvm::ArrayRef<int64_t> devices);

/// `[0, 2]`.
std::string describe(llvm::ArrayRef<int64_t> ranks);

} // namespace piper

#endif // PIPER_PASSES_DIRECTIVES_GROUPS_H
