// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PrintSchedule.cpp - a schedule as text -----------------------------===//

#include "passes/Passes.h"
#include "passes/schedule/Schedules.h"
#include "llvm/Support/raw_ostream.h"

namespace piper {
#define GEN_PASS_DEF_PRINTSCHEDULE
#include "passes/Passes.h.inc"

namespace {
struct PrintSchedule : public impl::PrintScheduleBase<PrintSchedule> {
  using PrintScheduleBase::PrintScheduleBase;

  void runOnOperation() override {
    std::string error;
    int64_t numRanks = ranks ? ranks : stages;
    std::optional<schedule::Table> table =
        schedule::buildSchedule(name, {stages, microbatches, numRanks}, error);
    if (!table) {
      getOperation().emitError(error);
      return signalPassFailure();
    }
    llvm::outs() << schedule::print(*table);
  }
};
} // namespace
} // namespace piper
