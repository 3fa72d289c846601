// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Plan.cpp - plan files through the C API ----------------------------===//

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"
#include "passes/capi/Piper.h"
#include "passes/plan/Export.h"

static void reply(MlirStringCallback callback, void *userData,
                  llvm::StringRef text) {
  callback(mlirStringRefCreate(text.data(), text.size()), userData);
}

bool piperExportPlan(MlirModule module, intptr_t numKernels,
                     MlirStringRef const *kernels,
                     uint64_t const *workspaceBytes, MlirStringCallback result,
                     MlirStringCallback error, void *userData) {
  llvm::StringMap<uint64_t> workspaces;
  for (intptr_t i = 0; i < numKernels; ++i)
    workspaces[unwrap(kernels[i])] = workspaceBytes[i];
  mlir::ModuleOp op = unwrap(module);
  std::string text;
  mlir::ScopedDiagnosticHandler handler(
      op.getContext(), [&](mlir::Diagnostic &diagnostic) {
        llvm::raw_string_ostream(text)
            << (text.empty() ? "" : "\n") << diagnostic.getLocation() << ": "
            << diagnostic;
        return mlir::success();
      });
  mlir::FailureOr<piper::plan::Plan> plan = piper::exportPlan(op, workspaces);
  if (mlir::failed(plan))
    reply(error, userData, text);
  else
    reply(result, userData, piper::plan::serialize(*plan));
  return mlir::succeeded(plan);
}

void piperPlanKernels(MlirModule module, MlirStringCallback callback,
                      void *userData) {
  for (mlir::StringAttr name : piper::getKernelNames(unwrap(module)))
    reply(callback, userData, name.getValue());
}
