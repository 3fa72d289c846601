// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanFiles.cpp - passes that write and read plan files --------------===//

#include "mlir/Support/FileUtilities.h"
#include "passes/Passes.h"
#include "passes/plan/Export.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

namespace piper {
#define GEN_PASS_DEF_EXPORTPLAN
#define GEN_PASS_DEF_IMPORTPLAN
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
struct ExportPlan : public piper::impl::ExportPlanBase<ExportPlan> {
  using ExportPlanBase::ExportPlanBase;

  void runOnOperation() override {
    FailureOr<plan::Plan> exported = exportPlan(getOperation());
    if (failed(exported))
      return signalPassFailure();
    std::string message;
    std::unique_ptr<llvm::ToolOutputFile> file =
        openOutputFile(output, &message);
    if (!file) {
      getOperation().emitError(message);
      return signalPassFailure();
    }
    file->os() << (text ? plan::dump(*exported) : plan::serialize(*exported));
    file->keep();
  }
};

struct ImportPlan : public piper::impl::ImportPlanBase<ImportPlan> {
  using ImportPlanBase::ImportPlanBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::string message;
    std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(input, &message);
    plan::Plan parsed;
    if (!file || !plan::parse(std::string_view(file->getBufferStart(),
                                               file->getBufferSize()),
                              parsed, message)) {
      module.emitError(message);
      return signalPassFailure();
    }
    module.getBody()->clear();
    importPlan(parsed, module);
  }
};
} // namespace
