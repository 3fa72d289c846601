// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Codegen.cpp - C API of the object compiler -------------------------===//

#include "passes/capi/Codegen.h"
#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"
#include "mlir/IR/DialectRegistry.h"
#include "passes/capi/Piper.h"
#include "passes/lowering/CompileObject.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace piper;

static const mlir::DialectRegistry &allDialects() {
  static const auto *registry = [] {
    auto *dialects = new mlir::DialectRegistry;
    piperRegisterDialects(wrap(dialects));
    return dialects;
  }();
  return *registry;
}

bool piperCompileObject(MlirStringRef text, MlirStringRef cpu,
                        MlirStringRef features, unsigned optLevel,
                        MlirStringCallback onObject,
                        MlirStringCallback onMetadata,
                        MlirStringCallback onError, void *userData) {
  CompiledObject object;
  std::string error;
  TargetSpec target{unwrap(cpu).str(), unwrap(features).str(), optLevel};
  if (llvm::failed(
          compileObject(allDialects(), unwrap(text), target, object, error))) {
    onError(wrap(llvm::StringRef(error)), userData);
    return false;
  }
  std::string metadata;
  llvm::raw_string_ostream(metadata) << llvm::json::Value(llvm::json::Object{
      {"symbol", object.symbol},
      {"workspace_bytes", object.workspaceBytes},
      {"inputs", object.inputs},
      {"results", object.results},
      {"work", object.work},
      {"target_cpu", object.target.cpu},
      {"target_features", object.target.features},
  });
  onObject(wrap(llvm::StringRef(object.bytes)), userData);
  onMetadata(wrap(llvm::StringRef(metadata)), userData);
  return true;
}

void piperHostCpu(MlirStringCallback onCpu, MlirStringCallback onFeatures,
                  void *userData) {
  TargetSpec host = hostTarget();
  onCpu(wrap(llvm::StringRef(host.cpu)), userData);
  onFeatures(wrap(llvm::StringRef(host.features)), userData);
}
