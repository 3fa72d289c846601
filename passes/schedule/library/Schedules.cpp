// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Schedules.cpp - schedules by name ----------------------------------===//

#include "passes/schedule/library/Schedules.h"
#include <algorithm>

using namespace piper::schedule;

/// More cells than any schedule of use has; a typo must not take all memory.
static constexpr int64_t maxCells = int64_t(1) << 24;

const std::vector<ScheduleInfo> &piper::schedule::getSchedules() {
  static const std::vector<ScheduleInfo> schedules = {
      {"gpipe", Layout::Single, false, gpipe},
      {"1f1b", Layout::Single, false, oneFOneB},
      {"interleaved_1f1b", Layout::Looped, false, interleaved1F1B},
      {"looped_bfs", Layout::Looped, false, loopedBfs},
      {"zb_h1", Layout::Single, true, zeroBubbleH1},
      {"zb_h2", Layout::Single, true, zeroBubbleH2},
      {"interleaved_zb", Layout::Looped, true, interleavedZeroBubble},
      {"zbv", Layout::V, true, zeroBubbleV},
      {"dualpipe", Layout::Bidirectional, true, dualPipe},
      {"dualpipev", Layout::V, true, dualPipeV},
  };
  return schedules;
}

const ScheduleInfo *piper::schedule::findSchedule(std::string_view name) {
  for (const ScheduleInfo &info : getSchedules())
    if (info.name == name)
      return &info;
  return nullptr;
}

static bool hasOneStagePerRank(Layout layout) {
  return layout == Layout::Single || layout == Layout::Bidirectional;
}

int64_t piper::schedule::getDefaultRanks(std::string_view name,
                                         int64_t stages) {
  const ScheduleInfo *info = findSchedule(name);
  if (!info)
    return -1;
  return hasOneStagePerRank(info->layout) ? stages
                                          : std::max<int64_t>(1, stages / 2);
}

int64_t piper::schedule::getDefaultStages(std::string_view name,
                                          int64_t ranks) {
  const ScheduleInfo *info = findSchedule(name);
  if (!info)
    return -1;
  return hasOneStagePerRank(info->layout) ? ranks : 2 * ranks;
}

int64_t piper::schedule::getRank(Layout layout, const Sizes &sizes,
                                 int64_t stage, int64_t microbatch) {
  switch (layout) {
  case Layout::Single:
    return stage;
  case Layout::Looped:
    return stage % sizes.ranks;
  case Layout::V:
    return std::min(stage, sizes.stages - 1 - stage);
  case Layout::Bidirectional:
    return microbatch < (sizes.microbatches + 1) / 2 ? stage
                                                     : sizes.ranks - 1 - stage;
  }
  return -1;
}

static std::string unknownSchedule(std::string_view name) {
  std::string message = "expected a schedule among";
  for (const ScheduleInfo &known : getSchedules())
    message += " " + std::string(known.name);
  return message + ", got " + std::string(name);
}

static std::string describe(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) +
         (count == 1 ? "" : "s");
}

/// "; the nearest are 2 and 4" around `got` in steps of `step`, from `step` on.
static std::string nearest(int64_t got, int64_t step) {
  int64_t below = got / step * step;
  std::string above = std::to_string(below + step);
  if (below == 0)
    return "; the nearest is " + above;
  return "; the nearest are " + std::to_string(below) + " and " + above;
}

/// What is wrong with how the stages lie on the ranks; empty if nothing is.
static std::string checkLayout(const ScheduleInfo &info, const Sizes &sizes) {
  std::string name(info.name);
  std::string got = ", got " + describe(sizes.stages, "stage") + " on " +
                    describe(sizes.ranks, "rank");
  switch (info.layout) {
  case Layout::Bidirectional:
    if (sizes.ranks % 2 != 0)
      return "expected an even number of ranks for " + name + ", got " +
             std::to_string(sizes.ranks) + nearest(sizes.ranks, 2);
    [[fallthrough]];
  case Layout::Single:
    if (sizes.ranks != sizes.stages)
      return "expected one stage per rank for " + name + got;
    return "";
  case Layout::V:
    if (sizes.stages != 2 * sizes.ranks)
      return "expected two stages per rank for " + name + got;
    return "";
  case Layout::Looped:
    if (sizes.stages % sizes.ranks != 0)
      return "expected as many stages on every rank for " + name + got +
             nearest(sizes.stages, sizes.ranks) + " stages";
    return "";
  }
  return "";
}

static std::string checkSizes(const ScheduleInfo &info, const Sizes &sizes) {
  if (sizes.ranks < 1)
    return "expected at least 1 rank, got " + std::to_string(sizes.ranks);
  if (sizes.stages < 1 || sizes.microbatches < 1)
    return "expected at least 1 stage and 1 microbatch, got " +
           std::to_string(sizes.stages) + " and " +
           std::to_string(sizes.microbatches);
  if (sizes.ranks > maxCells || sizes.stages > maxCells / sizes.microbatches)
    return "expected at most " + std::to_string(maxCells) +
           " pairs of stage and microbatch, got " +
           std::to_string(sizes.stages) + " stages and " +
           std::to_string(sizes.microbatches) + " microbatches";
  return checkLayout(info, sizes);
}

std::optional<Table> piper::schedule::buildSchedule(std::string_view name,
                                                    const Sizes &sizes,
                                                    std::string &error) {
  const ScheduleInfo *info = findSchedule(name);
  error = info ? checkSizes(*info, sizes) : unknownSchedule(name);
  if (!error.empty())
    return std::nullopt;
  return info->build(sizes);
}
