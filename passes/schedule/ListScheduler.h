// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ListScheduler.h - greedy scheduling of a task graph ------*- C++ -*-===//
//
// Plain C++, without the dialect: tasks that take time on resources that do
// one task at a time. At every moment each free resource starts, among its
// tasks that are ready, the one of the oldest microbatch, then the one with the
// longest path to the end. Oldest first keeps few microbatches alive and gets
// the first one to the last stage soon; the longest path alone does neither,
// since all microbatches have paths of one length.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_LISTSCHEDULER_H
#define PIPER_PASSES_SCHEDULE_LISTSCHEDULER_H

#include <cstdint>
#include <optional>
#include <vector>

namespace piper::schedule {

struct Task {
  int64_t duration = 0;
  uint32_t resource = 0;
  /// Order among ready tasks; tasks that belong to no microbatch come last.
  int64_t microbatch = INT64_MAX;
  /// Tasks that must have ended.
  std::vector<uint32_t> predecessors;
  /// The lease (see below) that this task takes, where it isn't taken yet.
  std::optional<uint32_t> opens;
  /// The leases that this task helps to give back: the last one does.
  std::vector<uint32_t> closes;
};

/// Something that a pool has room for a few of: what one microbatch keeps alive
/// in one device group until its last user has run.
struct Lease {
  uint32_t pool = 0;
};

struct Problem {
  std::vector<Task> tasks;
  std::vector<Lease> leases;
  /// How many leases a pool gives out at a time. Where the limits alone stop
  /// all progress, one more is given.
  std::vector<uint32_t> poolLimits;
};

struct Solution {
  /// Tasks in the order in which they start.
  std::vector<uint32_t> order;
  int64_t makespan = 0;
};

/// Nothing where the predecessors have a cycle.
std::optional<Solution> scheduleTasks(const Problem &problem);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LISTSCHEDULER_H
