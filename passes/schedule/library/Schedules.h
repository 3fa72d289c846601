// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Schedules.h - pipeline schedules as pure functions -------*- C++ -*-===//
//
// A schedule is a function from sizes to one row of actions per rank. It says
// only in which order a rank computes; transfers follow from placement. Which
// sizes a function takes says the list in Schedules.cpp, and `buildSchedule`
// checks them before it calls one.
//
// Every schedule takes any number of microbatches from 1. Where a paper asks
// for more, or for a multiple of something, the schedule's file says what
// becomes of the other counts.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_SCHEDULES_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_SCHEDULES_H

#include "passes/schedule/library/Table.h"

namespace piper::schedule {

struct Sizes {
  int64_t stages;
  int64_t microbatches;
  int64_t ranks;
};

// One stage per rank: stage s on rank s.
Table gpipe(const Sizes &sizes);
Table oneFOneB(const Sizes &sizes);
Table zeroBubbleH1(const Sizes &sizes);
Table zeroBubbleH2(const Sizes &sizes);

// Looped: stage s on rank s % ranks, any multiple of the ranks as stages.
Table interleaved1F1B(const Sizes &sizes);
Table loopedBfs(const Sizes &sizes);
Table interleavedZeroBubble(const Sizes &sizes);

// V: stages r and 2 * ranks - 1 - r on rank r.
Table zeroBubbleV(const Sizes &sizes);
Table dualPipeV(const Sizes &sizes);

// Two copies of the pipeline in opposite directions: rank r holds stage r for
// the first half of the microbatches, rounded up, and stage ranks - 1 - r for
// the rest.
Table dualPipe(const Sizes &sizes);

enum class Layout { Single, Looped, V, Bidirectional };

/// What is known about a schedule before it is built.
struct ScheduleInfo {
  std::string_view name;
  Layout layout;
  /// Whether some backwards are divided into I and W.
  bool splitsBackward;
  Table (*build)(const Sizes &);
};

/// In the order to list them in.
const std::vector<ScheduleInfo> &getSchedules();

/// Nothing where there is none of that name.
const ScheduleInfo *findSchedule(std::string_view name);

/// The ranks that `stages` stages usually take: as many, or half as many where
/// a rank has several stages. -1 for an unknown schedule.
int64_t getDefaultRanks(std::string_view name, int64_t stages);

/// The stages that `ranks` ranks usually hold. -1 for an unknown schedule.
int64_t getDefaultStages(std::string_view name, int64_t ranks);

/// The rank that runs a stage on a microbatch.
int64_t getRank(Layout layout, const Sizes &sizes, int64_t stage,
                int64_t microbatch);

/// The schedule called `name`, or nothing and a message in `error`.
std::optional<Table> buildSchedule(std::string_view name, const Sizes &sizes,
                                   std::string &error);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_SCHEDULES_H
