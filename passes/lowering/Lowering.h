// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Lowering.h - from linalg to object files -----------------*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_LOWERING_H
#define PIPER_PASSES_LOWERING_LOWERING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

namespace piper {

/// Attributes of the kernel function that the passes hand on.
inline constexpr llvm::StringLiteral kInputsAttr = "piper.inputs";
inline constexpr llvm::StringLiteral kResultsAttr = "piper.results";
inline constexpr llvm::StringLiteral kWorkspaceAttr = "piper.workspace_bytes";

/// The one public function of a kernel module, or null.
mlir::func::FuncOp findKernel(mlir::ModuleOp module);

/// True for ops whose result is another view of their first operand's buffer.
bool isViewOp(mlir::Operation *op);

/// The allocation, argument or global that `memref` is a view of.
mlir::Value baseOf(mlir::Value memref);

/// Append the passes that take a kernel module from linalg on tensors to loops
/// over buffers, and from there to the LLVM dialect. Together they are
/// `piper-lower-to-llvm`.
void buildLowerToBuffersPipeline(mlir::OpPassManager &pm);
void buildBuffersToLLVMPipeline(mlir::OpPassManager &pm);
void registerLoweringPipelines();

/// How Piper's kernel ops bufferize.
void registerBufferizationModels(mlir::DialectRegistry &registry);

} // namespace piper

#endif // PIPER_PASSES_LOWERING_LOWERING_H
