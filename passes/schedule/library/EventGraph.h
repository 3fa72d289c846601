// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EventGraph.h - what must happen before what --------------*- C++ -*-===//
//
// Events and the happens-before edges between them, in plain C++. Whoever
// orders or proves something asks it the same two questions: an order that
// respects all edges, or the cycle that forbids one (a deadlock).
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_EVENTGRAPH_H
#define PIPER_PASSES_SCHEDULE_EVENTGRAPH_H

#include <cstdint>
#include <optional>
#include <vector>

namespace piper::schedule {

class EventGraph {
public:
  using Event = uint32_t;

  explicit EventGraph(size_t numEvents = 0) : successors(numEvents) {}

  Event addEvent() {
    successors.emplace_back();
    return successors.size() - 1;
  }

  /// `before` ends before `after` begins. Repeating an edge changes nothing.
  void addEdge(Event before, Event after) {
    successors[before].push_back(after);
  }

  size_t size() const { return successors.size(); }
  const std::vector<Event> &getSuccessors(Event event) const {
    return successors[event];
  }

  /// All events, each behind its predecessors; among those that are free the
  /// smallest number first, so that an order that is already right stays.
  /// Nothing where there is a cycle.
  std::optional<std::vector<Event>> sort() const;

  /// As `sort`, as far as cycles allow: what is left out lies on or behind one.
  std::vector<Event> sortPrefix() const;

  /// A shortest cycle through one of its events: each one precedes the next,
  /// the last one the first. Empty where there is none.
  std::vector<Event> findCycle() const;

private:
  std::vector<std::vector<Event>> successors;
};

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_EVENTGRAPH_H
