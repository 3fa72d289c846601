// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- HappensBefore.h - a table as events ----------------------*- C++ -*-===//
//
// Every cell begins and ends. A cell begins when the one before it in its row
// has ended and everything that its actions need is there: the forward of the
// stage before, the backward of the stage behind, a forward for its backward, I
// for W. Between ranks a value is carried by a message: an event of its own.
//
// In a table that says nothing about transfers, a message leaves as soon as its
// value is there, and messages of one rank to another travel one after the
// other. In a table with SEND and RECV, messages from one rank to another meet
// in the order of both rows; a receive ends when its message is there; and if
// sends wait, a send ends when its receive has begun and the message is there.
//
// The prover asks these events for a cycle, the simulator for their times.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_HAPPENSBEFORE_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_HAPPENSBEFORE_H

#include "passes/schedule/library/EventGraph.h"
#include "passes/schedule/library/Problem.h"
#include <map>
#include <optional>

namespace piper::schedule {

class HappensBefore {
public:
  using Event = EventGraph::Event;

  /// `table` has passed `checkTable`. Where a send and its receive do not meet,
  /// there is a problem instead of events.
  HappensBefore(const Table &table, bool sendsWait);

  const std::optional<Problem> &getProblem() const { return problem; }
  const EventGraph &getEvents() const { return events; }
  Event getBegin(Position cell) const { return begins[cell.rank][cell.column]; }
  Event getEnd(Position cell) const { return getBegin(cell) + 1; }
  /// Messages that are on their way, after each other where they share a link.
  /// The event behind is the arrival.
  const std::vector<Event> &getMessages() const { return messages; }

  /// What keeps ranks from ever ending, if anything does.
  std::optional<Problem> findDeadlock() const;

private:
  struct Transfer {
    Action action;
    Position position;
  };
  /// Ranks of a sender and a receiver.
  using Link = std::pair<size_t, size_t>;

  void addRows();
  void addNeeds(const Action &action, Position position);
  void addNeed(const Action &needed, const Action &user, Position position);
  Event addMessage(Link link, Event sent, Event received);
  void addImplicitMessages();
  std::optional<Action> getPeer(const Action &transfer) const;
  void addTransfer(const Action &action, Position position);
  void matchTransfers();
  void matchTransfers(Link link, const std::vector<Transfer> &sends,
                      const std::vector<Transfer> &recvs);
  void fail(std::string message, std::vector<Mark> marks);
  const Position *find(const Action &action) const;
  const Position *findBackward(int64_t stage, int64_t microbatch) const;
  std::string explainWait(Position stuck, const std::vector<bool> &done) const;

  const Table &table;
  bool sendsWait;
  bool explicitTransfers;
  int64_t numStages;
  Placement placement;
  EventGraph events;
  std::optional<Problem> problem;
  std::vector<std::vector<Event>> begins; // by rank and column
  std::vector<Event> messages;
  std::map<Link, Event> lastMessages;
  /// Where a value is made and used, in a table without transfers.
  std::map<Link, std::vector<std::pair<Event, Event>>> implicitMessages;
  std::map<Action, Position> positions;
  std::map<Link, std::vector<Transfer>> sends, recvs;
  /// What a cell waits for besides its row: an event, and whose it is.
  struct Need {
    Event event;
    Position position;
    Action action;
  };
  std::map<Event, std::vector<Need>> needs;
};

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_HAPPENSBEFORE_H
