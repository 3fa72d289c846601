// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Schedules.h - pipeline schedules as pure functions -------*- C++ -*-===//
//
// A schedule is a function from sizes to one list of actions per rank. It says
// only in which order a rank computes; transfers follow from placement.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_SCHEDULES_H
#define PIPER_PASSES_SCHEDULE_SCHEDULES_H

#include "passes/schedule/Action.h"
#include <vector>

namespace piper::schedule {

/// Row r holds what rank r computes, in order.
using Table = std::vector<std::vector<Action>>;

struct Sizes {
  int64_t stages;
  int64_t microbatches;
  int64_t ranks;
};

/// All forwards, then all backwards (Huang et al., GPipe, 2019).
Table gpipe(const Sizes &sizes);

/// A stage runs ahead by as many forwards as there are stages from it to the
/// last, then alternates (Narayanan et al., PipeDream-Flush, 2021).
Table oneFOneB(const Sizes &sizes);

/// Names that `buildSchedule` knows, in the order to list them in.
std::vector<std::string> getScheduleNames();

/// The schedule called `name`, or nothing and a message in `error`.
std::optional<Table> buildSchedule(std::string_view name, const Sizes &sizes,
                                   std::string &error);

/// One line per rank: `rank 0: 0F0 0F1 0B0 0B1`.
std::string print(const Table &table);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_SCHEDULES_H
