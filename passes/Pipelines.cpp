// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Pipelines.cpp - one pipeline per phase -----------------------------===//

#include "passes/Pipelines.h"
#include "mlir/Pass/PassRegistry.h"
#include "passes/Passes.h"

using namespace piper;

void piper::buildSchedulePipeline(mlir::OpPassManager &manager) {
  // First of all: what follows places and orders the copies.
  manager.addPass(createSplit());
  // Groups decide which states are replicated where, and where values cross.
  manager.addPass(createPlace());
  // Turns states into buckets, which hold the reductions to be scheduled.
  manager.addPass(createReplicate());
  // Tokens name nodes; collectives and transfers are there to be sorted too.
  manager.addPass(createOrder());
  // One order of everything, which what follows keeps.
  manager.addPass(createListSchedule());
  // Rows are known from microbatches and replicas.
  manager.addPass(createSpecialize());
  // Nothing leaves the phase unproved.
  manager.addPass(createVerifyScheduled());
}

void piper::buildPlanPipeline(mlir::OpPassManager &manager) {
  // While it is seen who reads a value.
  manager.addPass(createDonateBundles());
  // Values become memory, operations the actions of those that take part.
  manager.addPass(createPartition());
  // Data first: what memory may be shared depends on what is ordered.
  manager.addPass(createAssignEvents());
  manager.addPass(createPlanMemory());
  // Kernels of the updates, for code generation.
  manager.addPass(createMaterializeUpdates());
  // Last, since memory planning may have added waits.
  manager.addPass(createVerifyPlanned());
}

void piper::registerPiperPipelines() {
  mlir::PassPipelineRegistration<>(
      "piper-schedule-pipeline",
      "Applies the strategy: from the imported to the scheduled phase",
      buildSchedulePipeline);
  mlir::PassPipelineRegistration<>(
      "piper-plan-pipeline",
      "Plans every rank: from the scheduled to the planned phase",
      buildPlanPipeline);
}
