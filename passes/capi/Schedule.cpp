// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Schedule.cpp - C API of the schedules ------------------------------===//

#include "mlir/CAPI/Support.h"
#include "passes/capi/Piper.h"
#include "passes/schedule/Schedules.h"

using namespace piper;

bool piperBuildSchedule(MlirStringRef name, int64_t stages,
                        int64_t microbatches, int64_t ranks,
                        PiperActionCallback onAction,
                        MlirStringCallback onError, void *userData) {
  std::string error;
  llvm::StringRef wanted = unwrap(name);
  std::optional<schedule::Table> table = schedule::buildSchedule(
      {wanted.data(), wanted.size()}, {stages, microbatches, ranks}, error);
  if (!table) {
    onError(wrap(llvm::StringRef(error)), userData);
    return false;
  }
  for (size_t rank = 0; rank < table->size(); ++rank)
    for (const schedule::Action &action : (*table)[rank])
      onAction(rank, wrap(llvm::StringRef(schedule::print(action))), userData);
  return true;
}

void piperListSchedules(MlirStringCallback onName, void *userData) {
  for (const std::string &name : schedule::getScheduleNames())
    onName(wrap(llvm::StringRef(name)), userData);
}
