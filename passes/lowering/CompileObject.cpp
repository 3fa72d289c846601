// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CompileObject.cpp - from MLIR text to an object file ---------------===//

#include "passes/lowering/CompileObject.h"
#include "passes/lowering/EmitObject.h"
#include "passes/lowering/Lowering.h"
#include "passes/lowering/Work.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace mlir;
using namespace piper;

/// Appends "file:line: message" lines to `error` while it lives.
static ScopedDiagnosticHandler collect(MLIRContext &context,
                                       std::string &error) {
  return ScopedDiagnosticHandler(&context, [&error](Diagnostic &diagnostic) {
    llvm::raw_string_ostream stream(error);
    stream << diagnostic.getLocation() << ": " << diagnostic << "\n";
    for (Diagnostic &note : diagnostic.getNotes())
      // Printed operations are pages long, and the text has them.
      if (!StringRef(note.str()).starts_with("see current operation"))
        stream << note.getLocation() << ": note: " << note << "\n";
    return success();
  });
}

/// Multiply-adds of a matrix product in the time of one iteration of a fused
/// loop over elements. Measured on Zen 4, one core: the backward of a block of
/// a language model (194 million and 1.9 million, 4.27 ms), its two halves (100
/// and 1.35, 2.25 ms; 94 and 0.18, 1.87 ms) and those of its head agree on 10
/// to 12.
static constexpr double iterationCost = 12;

/// Reads what the passes left on the entry function.
static LogicalResult describe(ModuleOp module, CompiledObject &object) {
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    auto inputs = function->getAttrOfType<IntegerAttr>(kInputsAttr);
    auto results = function->getAttrOfType<IntegerAttr>(kResultsAttr);
    auto workspace = function->getAttrOfType<IntegerAttr>(kWorkspaceAttr);
    if (!inputs || !results || !workspace)
      continue;
    object.symbol = function.getName().str();
    object.inputs = inputs.getInt();
    object.results = results.getInt();
    object.workspaceBytes = workspace.getInt();
    return success();
  }
  return module.emitError("expected an entry function after lowering, got "
                          "none");
}

LogicalResult piper::compileObject(const DialectRegistry &dialects,
                                   StringRef text, TargetSpec target,
                                   CompiledObject &object, std::string &error) {
  MLIRContext context(dialects, MLIRContext::Threading::DISABLED);
  ScopedDiagnosticHandler handler = collect(context, error);
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(&context), "kernel");
  if (!module)
    return failure();
  PassManager toBuffers(&context), toLLVM(&context);
  buildLowerToBuffersPipeline(toBuffers);
  if (failed(toBuffers.run(*module)))
    return failure();
  for (auto function : module->getOps<func::FuncOp>()) {
    Work work = countWork(function);
    object.work += work.multiplyAdds + iterationCost * work.iterations;
  }
  buildBuffersToLLVMPipeline(toLLVM);
  if (failed(toLLVM.run(*module)) || failed(describe(*module, object)))
    return failure();

  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(*module, llvmContext, object.symbol);
  if (!llvmModule) {
    error += "expected a module that translates to LLVM IR\n";
    return failure();
  }
  return emitObject(*llvmModule, std::move(target), object, error);
}
