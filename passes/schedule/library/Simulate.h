// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Simulate.h - when a table does what ----------------------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_SIMULATE_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_SIMULATE_H

#include "passes/schedule/library/Problem.h"

namespace piper::schedule {

/// What a stage takes for each kind of work, in any unit of time.
struct StageCosts {
  double forward = 1, backward = 2, inputGradient = 1, weightGradient = 1;
};

struct Costs {
  /// By stage; one entry stands for all stages.
  std::vector<StageCosts> stages = {StageCosts()};
  /// Between ranks: from when a message leaves until it is there, ...
  double latency = 0;
  /// ... and for how long it keeps the link from one rank to another busy.
  double transfer = 0;
};

struct Span {
  double start, end;
};

/// What one rank does.
struct RankTimes {
  double firstStart = 0, lastEnd = 0, busy = 0;
  /// Idle time within the rank's own span.
  double bubble() const { return lastEnd - firstStart - busy; }
  /// Most chunks whose forward has begun and whose last backward has not ended:
  /// B, or W where the backward is divided. In a cell of several actions the
  /// forward begins before the backward ends.
  int64_t peakLive = 0;
};

struct Times {
  double makespan = 0;
  std::vector<RankTimes> ranks;
  /// By rank and column of the table.
  std::vector<std::vector<Span>> cells;

  /// The largest of all ranks.
  double bubble() const;
};

/// Runs a table: every cell starts as soon as its rank and its inputs are
/// there. The actions of one cell take the sum of their times and end together.
/// `sendsWait` is whether a SEND occupies its rank until its receiver is there.
/// Where the table can't run (proveTable) there is an `error` instead.
std::optional<Times> simulate(const Table &table, const Costs &costs,
                              bool sendsWait, std::string &error);

/// One line per rank: first start, last end, busy, bubble, most live chunks.
std::string printTimes(const Times &times);

/// One line per rank over time, one column per shortest duration.
std::string printTimeline(const Table &table, const Times &times);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_SIMULATE_H
