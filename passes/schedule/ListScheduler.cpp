// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ListScheduler.cpp - greedy scheduling of a task graph --------------===//

#include "passes/schedule/ListScheduler.h"
#include "passes/schedule/library/EventGraph.h"
#include <algorithm>
#include <queue>
#include <set>
#include <tuple>

using namespace piper::schedule;

namespace {
/// Smaller comes first.
using Key = std::tuple<int64_t, int64_t, uint32_t>;

class Simulation {
public:
  Simulation(const Problem &problem, const EventGraph &graph,
             const std::vector<uint32_t> &topological);
  Solution run();

private:
  void computeKeys(const std::vector<uint32_t> &topological);
  void countClosers();
  void becomeReady(uint32_t task);
  bool mayStart(const Task &task) const;
  bool startOn(uint32_t resource, bool ignoreLimits);
  void startAll();
  void start(uint32_t task);
  void finish(uint32_t task);
  void close(uint32_t lease);

  const Problem &problem;
  const EventGraph &graph;
  std::vector<Key> keys;
  std::vector<uint32_t> waitingFor;
  std::vector<std::set<Key>> ready; // by resource
  std::vector<bool> busy;           // by resource
  std::set<uint32_t> changed;       // resources to look at again
  std::vector<uint32_t> closersLeft, poolUse;
  std::vector<bool> open;
  using End = std::tuple<int64_t, uint32_t>;
  std::priority_queue<End, std::vector<End>, std::greater<End>> running;
  int64_t now = 0;
  Solution solution;
};
} // namespace

Simulation::Simulation(const Problem &problem, const EventGraph &graph,
                       const std::vector<uint32_t> &topological)
    : problem(problem), graph(graph), keys(problem.tasks.size()),
      waitingFor(problem.tasks.size()), poolUse(problem.poolLimits.size()),
      open(problem.leases.size()) {
  uint32_t numResources = 0;
  for (const Task &task : problem.tasks)
    numResources = std::max(numResources, task.resource + 1);
  ready.resize(numResources);
  busy.resize(numResources);
  computeKeys(topological);
  countClosers();
}

void Simulation::computeKeys(const std::vector<uint32_t> &topological) {
  std::vector<int64_t> path(problem.tasks.size());
  for (auto it = topological.rbegin(); it != topological.rend(); ++it) {
    for (uint32_t next : graph.getSuccessors(*it))
      path[*it] = std::max(path[*it], path[next]);
    path[*it] += problem.tasks[*it].duration;
    keys[*it] = {problem.tasks[*it].microbatch, -path[*it], *it};
  }
}

void Simulation::countClosers() {
  closersLeft.resize(problem.leases.size());
  for (const Task &task : problem.tasks)
    for (uint32_t lease : task.closes)
      ++closersLeft[lease];
}

void Simulation::becomeReady(uint32_t task) {
  uint32_t resource = problem.tasks[task].resource;
  ready[resource].insert(keys[task]);
  changed.insert(resource);
}

bool Simulation::mayStart(const Task &task) const {
  if (!task.opens || open[*task.opens])
    return true;
  uint32_t pool = problem.leases[*task.opens].pool;
  return poolUse[pool] < problem.poolLimits[pool];
}

void Simulation::start(uint32_t task) {
  const Task &work = problem.tasks[task];
  // A lease that nothing gives back would fill its pool for ever.
  if (work.opens && !open[*work.opens] && closersLeft[*work.opens] > 0) {
    open[*work.opens] = true;
    ++poolUse[problem.leases[*work.opens].pool];
  }
  ready[work.resource].erase(keys[task]);
  busy[work.resource] = true;
  solution.order.push_back(task);
  running.push({now + work.duration, task});
}

void Simulation::finish(uint32_t task) {
  const Task &work = problem.tasks[task];
  busy[work.resource] = false;
  changed.insert(work.resource);
  for (uint32_t lease : work.closes)
    if (--closersLeft[lease] == 0 && open[lease])
      close(lease);
  for (uint32_t next : graph.getSuccessors(task))
    if (--waitingFor[next] == 0)
      becomeReady(next);
}

void Simulation::close(uint32_t lease) {
  open[lease] = false;
  --poolUse[problem.leases[lease].pool];
  for (uint32_t resource = 0; resource < ready.size(); ++resource)
    if (!ready[resource].empty())
      changed.insert(resource);
}

bool Simulation::startOn(uint32_t resource, bool ignoreLimits) {
  if (busy[resource])
    return false;
  for (const Key &key : ready[resource]) {
    uint32_t task = std::get<2>(key);
    if (!ignoreLimits && !mayStart(problem.tasks[task]))
      continue;
    start(task);
    return true;
  }
  return false;
}

void Simulation::startAll() {
  std::set<uint32_t> look;
  look.swap(changed);
  for (uint32_t resource : look)
    startOn(resource, /*ignoreLimits=*/false);
  if (!running.empty())
    return;
  for (uint32_t resource = 0; resource < ready.size(); ++resource)
    if (startOn(resource, /*ignoreLimits=*/true))
      return;
}

Solution Simulation::run() {
  for (uint32_t task = 0; task < problem.tasks.size(); ++task) {
    for (uint32_t next : graph.getSuccessors(task))
      ++waitingFor[next];
  }
  for (uint32_t task = 0; task < problem.tasks.size(); ++task)
    if (waitingFor[task] == 0)
      becomeReady(task);
  startAll();
  while (!running.empty()) {
    now = std::get<0>(running.top());
    while (!running.empty() && std::get<0>(running.top()) == now) {
      uint32_t task = std::get<1>(running.top());
      running.pop();
      finish(task);
    }
    startAll();
  }
  solution.makespan = now;
  return std::move(solution);
}

std::optional<Solution> piper::schedule::scheduleTasks(const Problem &problem) {
  EventGraph graph(problem.tasks.size());
  for (uint32_t task = 0; task < problem.tasks.size(); ++task)
    for (uint32_t before : problem.tasks[task].predecessors)
      graph.addEdge(before, task);
  std::optional<std::vector<uint32_t>> topological = graph.sort();
  if (!topological)
    return std::nullopt;
  return Simulation(problem, graph, *topological).run();
}
