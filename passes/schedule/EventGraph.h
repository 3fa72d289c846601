// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EventGraph.h - what must happen before what --------------*- C++ -*-===//
//
// Events and the happens-before edges between them. Plain C++: scheduling, the
// verifiers and memory planning all ask it the same two questions, whether
// there is a cycle (a deadlock) and whether one event precedes another (a race
// if it does not).
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

  /// A shortest cycle through one of its events: each one precedes the next,
  /// the last one the first. Empty where there is none.
  std::vector<Event> findCycle() const;

private:
  std::vector<std::vector<Event>> successors;
};

/// Answers "does a precede b" in constant time for events that lie on few
/// chains (a chain is a stream of a rank: its events are totally ordered).
class Precedence {
public:
  /// `chain[e]` is the chain of event e. The graph must be acyclic, and events
  /// of one chain ordered by its edges.
  Precedence(const EventGraph &graph, const std::vector<uint32_t> &chain);

  /// Whether `before` ends before `after` begins.
  bool precedes(EventGraph::Event before, EventGraph::Event after) const;

private:
  size_t numChains = 0;
  std::vector<uint32_t> chain;
  /// Position of an event on its chain, from 1.
  std::vector<uint32_t> position;
  /// clocks[e * numChains + c]: the last position of chain c that precedes e.
  std::vector<uint32_t> clocks;
};

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_EVENTGRAPH_H
