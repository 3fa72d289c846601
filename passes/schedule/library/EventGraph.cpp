// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EventGraph.cpp - what must happen before what ----------------------===//

#include "passes/schedule/library/EventGraph.h"
#include <algorithm>
#include <functional>
#include <queue>

using namespace piper::schedule;
using Event = EventGraph::Event;

static std::vector<uint32_t> countPredecessors(const EventGraph &graph) {
  std::vector<uint32_t> counts(graph.size());
  for (Event event = 0; event < graph.size(); ++event)
    for (Event next : graph.getSuccessors(event))
      ++counts[next];
  return counts;
}

/// Sorts as far as cycles allow; what is left over lies on or behind a cycle.
static std::vector<Event> sortPrefix(const EventGraph &graph,
                                     std::vector<uint32_t> &counts) {
  counts = countPredecessors(graph);
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> free;
  for (Event event = 0; event < graph.size(); ++event)
    if (counts[event] == 0)
      free.push(event);
  std::vector<Event> order;
  order.reserve(graph.size());
  while (!free.empty()) {
    Event event = free.top();
    free.pop();
    order.push_back(event);
    for (Event next : graph.getSuccessors(event))
      if (--counts[next] == 0)
        free.push(next);
  }
  return order;
}

std::vector<Event> EventGraph::sortPrefix() const {
  std::vector<uint32_t> counts;
  return ::sortPrefix(*this, counts);
}

std::optional<std::vector<Event>> EventGraph::sort() const {
  std::vector<Event> order = sortPrefix();
  if (order.size() != size())
    return std::nullopt;
  return order;
}

/// An event on a cycle: going back along predecessors that are stuck too can't
/// leave the stuck events, so it must come round.
static std::optional<Event>
findEventOnCycle(const EventGraph &graph, const std::vector<uint32_t> &counts) {
  constexpr Event none = ~Event(0);
  std::vector<Event> stuckBefore(graph.size(), none);
  Event start = none;
  for (Event event = 0; event < graph.size(); ++event) {
    if (counts[event] == 0)
      continue;
    if (start == none)
      start = event;
    for (Event next : graph.getSuccessors(event))
      if (stuckBefore[next] == none)
        stuckBefore[next] = event;
  }
  if (start == none)
    return std::nullopt;
  std::vector<bool> seen(graph.size());
  while (!seen[start]) {
    seen[start] = true;
    start = stuckBefore[start];
  }
  return start;
}

std::vector<Event> EventGraph::findCycle() const {
  std::vector<uint32_t> counts;
  ::sortPrefix(*this, counts);
  std::optional<Event> start = findEventOnCycle(*this, counts);
  if (!start)
    return {};
  // Breadth first from it back to itself: the shortest way round is the
  // easiest to read.
  constexpr Event none = ~Event(0);
  std::vector<Event> from(size(), none);
  std::queue<Event> front;
  front.push(*start);
  while (from[*start] == none) {
    Event event = front.front();
    front.pop();
    for (Event next : successors[event]) {
      if (counts[next] == 0 || from[next] != none)
        continue;
      from[next] = event;
      front.push(next);
    }
  }
  std::vector<Event> cycle;
  Event event = *start;
  do {
    event = from[event];
    cycle.push_back(event);
  } while (event != *start);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}
