// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Pipelines.h - one pipeline per phase ---------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PIPELINES_H
#define PIPER_PASSES_PIPELINES_H

#include "mlir/Pass/PassManager.h"

namespace piper {

/// Imported to scheduled: applies the strategy.
void buildSchedulePipeline(mlir::OpPassManager &manager);

/// Scheduled to planned: a plan for every class of ranks.
void buildPlanPipeline(mlir::OpPassManager &manager);

/// Registers Piper's pipelines by name.
void registerPiperPipelines();

} // namespace piper

#endif // PIPER_PASSES_PIPELINES_H
