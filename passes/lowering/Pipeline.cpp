// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Pipeline.cpp - from linalg on tensors to the LLVM dialect ----------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace piper {
namespace {
void cleanUp(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

/// bf16 and f16 are computed in f32: LLVM would call routines that nobody
/// provides, on processors that lack the instructions.
void extendHalfPrecision(OpPassManager &function) {
  arith::ArithEmulateUnsupportedFloatsOptions arithmetic;
  arithmetic.sourceTypeStrs = {"bf16", "f16"};
  arithmetic.targetTypeStr = "f32";
  function.addPass(arith::createArithEmulateUnsupportedFloats(arithmetic));
  math::MathExtendToSupportedTypesOptions functions;
  functions.targetTypeStr = "f32";
  function.addPass(math::createMathExtendToSupportedTypes(functions));
}

/// Linalg on tensors: everything that is easier without memory.
void buildTensorPhase(OpPassManager &pm) {
  pm.addPass(createVerifyKernel());
  // The only CSE on tensors: later ones could merge distinct destinations.
  cleanUp(pm);
  auto &function = pm.nest<func::FuncOp>();
  function.addPass(createGuardIndices());
  function.addPass(createDecomposeConcat());
  function.addPass(createFoldConversions());
  // While transposes and zero fills are still apart from other ops.
  function.addPass(createMatmulToGemm());
  function.addPass(createGeneralize());
  extendHalfPrecision(function);
  function.addPass(createExpandMath());
  function.addPass(createRelaxFloatingPoint());
  // Folding a loop of a window relies on operands without a rest.
  function.addPass(createTrimWindows());
  // Fusion compares indexing maps, which unit dims would make differ.
  function.addPass(createLinalgFoldUnitExtentDimsPass());
  function.addPass(createLinalgElementwiseOpFusionPass());
  function.addPass(createFoldConversions());
  function.addPass(createCanonicalizerPass());
}

/// Tensors become buffers; results are written where the caller wants them.
void buildBufferPhase(OpPassManager &pm) {
  auto &function = pm.nest<func::FuncOp>();
  // Before it is decided which op reads a value last.
  function.addPass(createComputeLate());
  function.addPass(createLibraryCallDestinations());
  // After the last CSE, which would merge the copies again.
  function.addPass(createSplitFills());
  // While arguments are tensors and every result has a tensor of its own.
  function.addPass(createUpdateInPlace());
  // Parts of a concatenation are computed in their place.
  pm.addPass(bufferization::createEmptyTensorEliminationPass());
  pm.nest<func::FuncOp>().addPass(createDestinationPassing());
  bufferization::OneShotBufferizePassOptions options;
  options.bufferAlignment = 64;
  pm.addPass(bufferization::createOneShotBufferizePass(options));
  // No CSE here: it merges allocations of equal type.
  pm.addPass(createCanonicalizerPass());
  auto &buffers = pm.nest<func::FuncOp>();
  buffers.addPass(createForwardResults());
  buffers.addPass(createCanonicalizerPass());
  buffers.addPass(createCopyToGeneric());
}

/// Loop nests become functions, allocations one workspace, calls C calls.
void buildNestPhase(OpPassManager &pm) {
  pm.nest<func::FuncOp>().addPass(createGroupRows());
  pm.addPass(createOutlineKernels());
  pm.nest<func::FuncOp>().addPass(createPlanWorkspace());
  pm.addPass(createLowerKernelCalls());
  pm.nest<func::FuncOp>().addPass(createConvertLinalgToLoopsPass());
  pm.addPass(createLowerAsserts());
  // After loops exist: linalg has no i1 extension to insert.
  pm.addPass(createWidenBooleans());
  pm.addPass(createExpandConversions());
}

void buildLLVMPhase(OpPassManager &pm) {
  pm.addPass(memref::createFoldMemRefAliasOpsPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  cleanUp(pm);
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  // Others have an intrinsic or a libm function, which are more accurate.
  math::MathExpandOpsPassOptions expanded;
  expanded.opMnemonics = {"fpowi", "clampf"};
  pm.addPass(math::createMathExpandOpsPass(expanded));
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertMathToLibmPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  ConvertFuncToLLVMPassOptions functions;
  // One pointer per buffer, whose shape is part of the code.
  functions.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(functions));
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  cleanUp(pm);
  pm.addPass(createHoldBitsOfBFloat16());
  pm.addPass(createPackedEntry());
}
} // namespace

void buildLowerToBuffersPipeline(OpPassManager &pm) {
  buildTensorPhase(pm);
  buildBufferPhase(pm);
}

void buildBuffersToLLVMPipeline(OpPassManager &pm) {
  buildNestPhase(pm);
  buildLLVMPhase(pm);
}

void registerLoweringPipelines() {
  PassPipelineRegistration<>(
      "piper-lower-to-llvm",
      "Takes a kernel from linalg on tensors to the LLVM dialect",
      [](OpPassManager &pm) {
        buildLowerToBuffersPipeline(pm);
        buildBuffersToLLVMPipeline(pm);
      });
}
} // namespace piper
