// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- VerifyPlanned.cpp - what closes the planned phase ------------------===//

#include "passes/Passes.h"
#include "passes/plan/Checks.h"
#include "llvm/ADT/MapVector.h"

namespace piper {
#define GEN_PASS_DEF_VERIFYPLANNED
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
struct VerifyPlanned : public piper::impl::VerifyPlannedBase<VerifyPlanned> {
  void runOnOperation() override {
    if (failed(verify(getOperation())))
      return signalPassFailure();
    getOperation()->setAttr("piper.phase",
                            StringAttr::get(&getContext(), "planned"));
  }

  LogicalResult verify(ModuleOp module);
};
} // namespace

LogicalResult VerifyPlanned::verify(ModuleOp module) {
  for (Operation &op : *module.getBody())
    if (isa<GraphOp>(op))
      return op.emitOpError("expected plans instead of graphs in the planned "
                            "phase");
  PlanTables tables(module);
  llvm::MapVector<StringAttr, SmallVector<EntryOp>> entries;
  for (auto plan : module.getOps<PlanOp>())
    for (auto entry : plan.getBody().front().getOps<EntryOp>())
      entries[entry.getNameAttr()].push_back(entry);
  for (auto &[name, ofClasses] : entries) {
    RankOrder order(ofClasses, tables);
    for (EntryOp entry : ofClasses) {
      bool isAccessKnown = true;
      for (auto launch : entry.getBody().front().getOps<LaunchOp>()) {
        KernelOp kernel = tables.lookupKernel(launch.getKernelAttr());
        if (!kernel ||
            kernel.getPointerBytes().size() != launch.getPointers().size())
          return launch.emitOpError("expected a kernel with ")
                 << launch.getPointers().size() << " pointers, got "
                 << launch.getKernelAttr();
        isAccessKnown &=
            kernel.getAccess().size() == kernel.getPointerBytes().size();
      }
      // A plan file does not tell what kernels read and write.
      if (isAccessKnown && failed(checkMemory(entry, tables, order)))
        return failure();
    }
    Traffic traffic(ofClasses, tables);
    if (failed(traffic.checkMatching()) ||
        failed(traffic.checkAcyclic(/*sendsWait=*/false)) ||
        failed(traffic.checkAcyclic(/*sendsWait=*/true)))
      return failure();
  }
  return success();
}
