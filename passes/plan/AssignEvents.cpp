// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- AssignEvents.cpp - record and wait where data needs them -----------===//

#include "passes/Passes.h"
#include "passes/plan/Synchronize.h"

namespace piper {
#define GEN_PASS_DEF_ASSIGNEVENTS
#include "passes/Passes.h.inc"
} // namespace piper

namespace {
struct AssignEvents : public piper::impl::AssignEventsBase<AssignEvents> {
  void runOnOperation() override {
    if (failed(piper::synchronize(getOperation())))
      signalPassFailure();
  }
};
} // namespace
