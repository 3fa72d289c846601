// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EmitObject.cpp - optimization and code generation by LLVM ----------===//

#include "passes/lowering/EmitObject.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"

using namespace llvm;
using namespace piper;

static constexpr StringLiteral kTriple = "x86_64-unknown-linux-gnu";

TargetSpec piper::hostTarget() {
  TargetSpec host;
  host.cpu = sys::getHostCPUName().str();
  SmallVector<std::string> features;
  for (const auto &feature : sys::getHostCPUFeatures())
    features.push_back((feature.getValue() ? "+" : "-") +
                       feature.getKey().str());
  // The map's order is that of hashes; equal hosts must give equal text.
  llvm::sort(features);
  host.features = llvm::join(features, ",");
  return host;
}

static void initializeTarget() {
  static const bool once = [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)once;
}

static std::unique_ptr<TargetMachine> createMachine(const TargetSpec &target,
                                                    std::string &error) {
  initializeTarget();
  Triple triple(kTriple);
  std::string message;
  const Target *found = TargetRegistry::lookupTarget(triple, message);
  if (!found) {
    error += message + "\n";
    return nullptr;
  }
  auto level = target.optLevel == 0   ? CodeGenOptLevel::None
               : target.optLevel == 1 ? CodeGenOptLevel::Less
                                      : CodeGenOptLevel::Default;
  std::unique_ptr<TargetMachine> machine(found->createTargetMachine(
      triple, target.cpu, target.features, TargetOptions(), Reloc::PIC_,
      CodeModel::Small, level));
  if (!machine ||
      !machine->getMCSubtargetInfo()->isCPUStringValid(target.cpu)) {
    error += "expected an x86-64 processor, got '" + target.cpu + "'\n";
    return nullptr;
  }
  return machine;
}

static void setTargetAttributes(Module &module, const TargetSpec &target) {
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty())
      function.addFnAttr("target-features", target.features);
    // Where the processor has 512-bit vectors, LLVM would still take 256.
    function.addFnAttr("prefer-vector-width", "512");
  }
}

static void optimize(Module &module, TargetMachine &machine,
                     unsigned optLevel) {
  PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = optLevel > 1;
  // Unrolling swallows short inner loops before the vectorizer sees them, and
  // costs most of the compile time.
  tuning.LoopUnrolling = false;
  PassBuilder builder(&machine, tuning);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  OptimizationLevel level = optLevel == 0   ? OptimizationLevel::O0
                            : optLevel == 1 ? OptimizationLevel::O1
                            : optLevel == 2 ? OptimizationLevel::O2
                                            : OptimizationLevel::O3;
  ModulePassManager passes = optLevel == 0
                                 ? builder.buildO0DefaultPipeline(level)
                                 : builder.buildPerModuleDefaultPipeline(level);
  passes.run(module, modules);
}

LogicalResult piper::emitObject(Module &module, TargetSpec target,
                                CompiledObject &object, std::string &error) {
  if (target.cpu.empty() || target.cpu == "native") {
    TargetSpec host = hostTarget();
    target.cpu = host.cpu;
    // Features that the caller names come last and win.
    target.features = target.features.empty()
                          ? host.features
                          : host.features + "," + target.features;
  }
  std::unique_ptr<TargetMachine> machine = createMachine(target, error);
  if (!machine)
    return failure();
  module.setTargetTriple(Triple(kTriple));
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(PICLevel::BigPIC);
  setTargetAttributes(module, target);
  raw_string_ostream messages(error);
  if (verifyModule(module, &messages))
    return failure();
  optimize(module, *machine, target.optLevel);

  SmallVector<char> bytes;
  raw_svector_ostream stream(bytes);
  legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   CodeGenFileType::ObjectFile)) {
    error += "expected a target that writes object files, got '" + target.cpu +
             "'\n";
    return failure();
  }
  codegen.run(module);
  object.bytes.assign(bytes.begin(), bytes.end());
  object.target = std::move(target);
  return success();
}
