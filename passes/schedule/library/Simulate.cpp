// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Simulate.cpp - when a table does what ------------------------------===//

#include "passes/schedule/library/Simulate.h"
#include "passes/schedule/library/Check.h"
#include "passes/schedule/library/HappensBefore.h"
#include <algorithm>

using namespace piper::schedule;
using Event = EventGraph::Event;

double Times::bubble() const {
  double largest = 0;
  for (const RankTimes &rank : ranks)
    largest = std::max(largest, rank.bubble());
  return largest;
}

static double getCost(const Action &action, const Costs &costs) {
  const StageCosts &stage = costs.stages.size() == 1
                                ? costs.stages.front()
                                : costs.stages[action.stage];
  switch (action.kind) {
  case Kind::F:
    return stage.forward;
  case Kind::B:
    return stage.backward;
  case Kind::I:
    return stage.inputGradient;
  case Kind::W:
    return stage.weightGradient;
  default:
    return 0;
  }
}

static double getCost(const Cell &cell, const Costs &costs) {
  double sum = 0;
  for (const Action &action : cell)
    sum += getCost(action, costs);
  return sum;
}

/// How long each event takes: work lies in the end of a cell.
static std::vector<double> getDurations(const Table &table, const Costs &costs,
                                        const HappensBefore &order) {
  std::vector<double> durations(order.getEvents().size());
  for (size_t rank = 0; rank < table.size(); ++rank)
    for (size_t column = 0; column < table[rank].size(); ++column)
      durations[order.getEnd({rank, column})] =
          getCost(table[rank][column], costs);
  for (Event message : order.getMessages()) {
    durations[message] = costs.transfer;
    durations[message + 1] = costs.latency;
  }
  return durations;
}

/// When each event is over if nothing waits longer than it must.
static std::vector<double> getEnds(const EventGraph &events,
                                   const std::vector<double> &durations) {
  std::vector<double> ends(events.size());
  std::vector<Event> order = *events.sort();
  for (Event event : order) {
    ends[event] += durations[event];
    for (Event next : events.getSuccessors(event))
      ends[next] = std::max(ends[next], ends[event]);
  }
  return ends;
}

static int64_t countPeak(const Row &row) {
  int64_t live = 0, peak = 0;
  for (const Cell &cell : row) {
    for (const Action &action : cell)
      live += action.kind == Kind::F;
    peak = std::max(peak, live);
    for (const Action &action : cell)
      live -= action.kind == Kind::B || action.kind == Kind::W;
  }
  return peak;
}

static RankTimes summarize(const Row &row, const std::vector<Span> &spans) {
  RankTimes times;
  bool isFirst = true;
  for (size_t column = 0; column < row.size(); ++column) {
    bool computes = std::any_of(
        row[column].begin(), row[column].end(),
        [](const Action &action) { return isCompute(action.kind); });
    if (!computes)
      continue;
    if (isFirst)
      times.firstStart = spans[column].start;
    isFirst = false;
    times.lastEnd = spans[column].end;
    times.busy += spans[column].end - spans[column].start;
  }
  times.peakLive = countPeak(row);
  return times;
}

/// Empty if the table can be run at these costs.
static std::string checkInput(const Table &table, const Costs &costs) {
  if (std::optional<Problem> problem = checkTable(table))
    return printProblem(table, *problem);
  size_t numStages = countStages(table);
  if (costs.stages.size() != 1 && costs.stages.size() != numStages)
    return "expected the costs of " + std::to_string(numStages) +
           " stages, got those of " + std::to_string(costs.stages.size());
  std::vector<double> all = {costs.latency, costs.transfer};
  for (const StageCosts &stage : costs.stages)
    all.insert(all.end(), {stage.forward, stage.backward, stage.inputGradient,
                           stage.weightGradient});
  for (double cost : all)
    if (!(cost >= 0 && cost <= 1e18))
      return "expected costs from 0 to 1e18, got " + std::to_string(cost);
  return "";
}

std::optional<Times> piper::schedule::simulate(const Table &table,
                                               const Costs &costs,
                                               bool sendsWait,
                                               std::string &error) {
  error = checkInput(table, costs);
  if (!error.empty())
    return std::nullopt;
  HappensBefore order(table, sendsWait);
  std::optional<Problem> problem = order.getProblem();
  if (!problem)
    problem = order.findDeadlock();
  if (problem) {
    error = printProblem(table, *problem);
    return std::nullopt;
  }
  std::vector<double> durations = getDurations(table, costs, order);
  std::vector<double> ends = getEnds(order.getEvents(), durations);
  Times times;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    std::vector<Span> spans;
    for (size_t column = 0; column < table[rank].size(); ++column) {
      Event end = order.getEnd({rank, column});
      spans.push_back({ends[end] - durations[end], ends[end]});
    }
    times.ranks.push_back(summarize(table[rank], spans));
    times.makespan = std::max(times.makespan, times.ranks.back().lastEnd);
    times.cells.push_back(std::move(spans));
  }
  return times;
}
