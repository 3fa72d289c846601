// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EightSteps.h - the steps of DualPipe and DualPipeV -------*- C++ -*-===//
//
// Both schedules are the same eight steps over two lanes, which cross on every
// rank: the two directions of DualPipe, the two halves of the V of DualPipeV.
// DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, arXiv:2412.19437, section
// 3.2.1; the counts are those of its published implementation.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_EIGHTSTEPS_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_EIGHTSTEPS_H

#include "passes/schedule/library/Schedules.h"

namespace piper::schedule {

/// What passes through a rank one way.
struct Lane {
  int64_t stage;
  int64_t firstMicrobatch;
  /// Microbatches that there are; the steps may count further.
  int64_t numMicrobatches;
};

/// The row of a rank `position` ranks from where lane 0 begins. `depth` ranks
/// lie between that and where the lanes turn. `count`, at least 2 * depth, is
/// the number of microbatches that each lane is planned for.
Row buildEightSteps(int64_t depth, int64_t position, int64_t count, Lane lane0,
                    Lane lane1);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_EIGHTSTEPS_H
