// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- HappensBefore.cpp - a table as events ------------------------------===//

#include "passes/schedule/library/HappensBefore.h"
#include <algorithm>

using namespace piper::schedule;
using Event = EventGraph::Event;

static std::string onRank(size_t rank) {
  return "rank " + std::to_string(rank);
}

HappensBefore::HappensBefore(const Table &table, bool sendsWait)
    : table(table), sendsWait(sendsWait),
      explicitTransfers(hasTransfers(table)), numStages(countStages(table)),
      placement(findPlacement(table)) {
  addRows();
  for (size_t rank = 0; rank < table.size(); ++rank)
    for (size_t column = 0; column < table[rank].size(); ++column)
      for (const Action &action : table[rank][column]) {
        Position position{rank, column};
        if (isCompute(action.kind))
          addNeeds(action, position);
        else if (isTransfer(action.kind))
          addTransfer(action, position);
        if (problem)
          return;
      }
  addImplicitMessages();
  matchTransfers();
}

void HappensBefore::fail(std::string message, std::vector<Mark> marks) {
  if (!problem)
    problem = Problem{std::move(message), std::move(marks)};
}

const Position *HappensBefore::find(const Action &action) const {
  auto it = positions.find(action);
  return it == positions.end() ? nullptr : &it->second;
}

const Position *HappensBefore::findBackward(int64_t stage,
                                            int64_t microbatch) const {
  const Position *whole = find({stage, Kind::B, microbatch});
  return whole ? whole : find({stage, Kind::I, microbatch});
}

void HappensBefore::addRows() {
  begins.resize(table.size());
  for (size_t rank = 0; rank < table.size(); ++rank)
    for (size_t column = 0; column < table[rank].size(); ++column) {
      Event begin = events.addEvent(), end = events.addEvent();
      events.addEdge(begin, end);
      if (column > 0)
        events.addEdge(begins[rank].back() + 1, begin);
      begins[rank].push_back(begin);
      for (const Action &action : table[rank][column])
        positions.try_emplace(action, Position{rank, column});
    }
}

/// `user` needs the result of `needed`, where there is such an action.
void HappensBefore::addNeed(const Action &needed, const Action &user,
                            Position position) {
  const Position *found = find(needed);
  if (!found)
    return;
  Event begin = getBegin(position);
  Position source = *found;
  if (source.rank == position.rank || needed.stage == user.stage) {
    events.addEdge(getEnd(source), begin);
    needs[begin].push_back({getEnd(source), source, needed});
    return;
  }
  if (!explicitTransfers) {
    implicitMessages[{source.rank, position.rank}].push_back(
        {getEnd(source), begin});
    needs[begin].push_back({getEnd(source), source, needed});
    return;
  }
  Action recv{user.stage, user.kind == Kind::F ? Kind::RecvF : Kind::RecvB,
              user.microbatch};
  const Position *received = find(recv);
  if (!received || received->rank != position.rank)
    return fail("expected " + print(recv) + " before " + print(user) + " on " +
                    onRank(position.rank) + ", got none",
                {{position, ""}});
  events.addEdge(getEnd(*received), begin);
  needs[begin].push_back({getEnd(*received), *received, recv});
}

void HappensBefore::addNeeds(const Action &action, Position position) {
  auto [stage, kind, microbatch] = action;
  switch (kind) {
  case Kind::F:
    return addNeed({stage - 1, Kind::F, microbatch}, action, position);
  case Kind::W:
    return addNeed({stage, Kind::I, microbatch}, action, position);
  default:
    addNeed({stage, Kind::F, microbatch}, action, position);
    if (const Position *next = findBackward(stage + 1, microbatch)) {
      bool isWhole = find({stage + 1, Kind::B, microbatch}) == next;
      addNeed({stage + 1, isWhole ? Kind::B : Kind::I, microbatch}, action,
              position);
    }
  }
}

Event HappensBefore::addMessage(Link link, Event sent, Event received) {
  Event message = events.addEvent(), arrival = events.addEvent();
  events.addEdge(sent, message);
  events.addEdge(message, arrival);
  events.addEdge(arrival, received);
  auto [last, isFirst] = lastMessages.try_emplace(link, message);
  if (!isFirst) {
    events.addEdge(last->second, message);
    last->second = message;
  }
  messages.push_back(message);
  return message;
}

/// They leave in the order in which they are made.
void HappensBefore::addImplicitMessages() {
  for (auto &[link, list] : implicitMessages) {
    std::stable_sort(list.begin(), list.end(),
                     [](auto &a, auto &b) { return a.first < b.first; });
    for (auto [made, used] : list)
      addMessage(link, made, used);
  }
}

/// The other side of a transfer, if there is such a stage.
std::optional<Action> HappensBefore::getPeer(const Action &transfer) const {
  bool isForward = transfer.kind == Kind::SendF || transfer.kind == Kind::RecvF;
  bool up = isForward == isSend(transfer.kind);
  int64_t stage = transfer.stage + (up ? 1 : -1);
  if (stage < 0 || stage >= numStages)
    return std::nullopt;
  Kind forward = isSend(transfer.kind) ? Kind::RecvF : Kind::SendF;
  Kind backward = isSend(transfer.kind) ? Kind::RecvB : Kind::SendB;
  return Action{stage, isForward ? forward : backward, transfer.microbatch};
}

void HappensBefore::addTransfer(const Action &action, Position position) {
  std::optional<Action> peer = getPeer(action);
  if (!peer)
    return fail("expected a stage at the other end of " + print(action) +
                    ", got " + std::to_string(numStages) + " stages",
                {{position, ""}});
  auto peerRank = placement.find({peer->stage, peer->microbatch});
  auto ownRank = placement.find({action.stage, action.microbatch});
  if (ownRank == placement.end() || ownRank->second != position.rank)
    return fail("expected " + print(action) +
                    " on the rank that computes it, "
                    "got " +
                    onRank(position.rank),
                {{position, ""}});
  if (peerRank == placement.end() || peerRank->second == position.rank)
    return fail("expected a transfer to another rank, got " + print(action) +
                    " between stages of " + onRank(position.rank),
                {{position, ""}});
  if (isRecv(action.kind)) {
    recvs[{peerRank->second, position.rank}].push_back({action, position});
    return;
  }
  sends[{position.rank, peerRank->second}].push_back({action, position});
  const Position *made = action.kind == Kind::SendF
                             ? find({action.stage, Kind::F, action.microbatch})
                             : findBackward(action.stage, action.microbatch);
  if (!made)
    return fail("expected what " + print(action) +
                    " sends to be computed, got "
                    "none",
                {{position, ""}});
  Event begin = getBegin(position);
  events.addEdge(getEnd(*made), begin);
  needs[begin].push_back(
      {getEnd(*made), *made, table[made->rank][made->column].front()});
}

void HappensBefore::matchTransfers() {
  for (const auto &[link, list] : recvs)
    if (!problem)
      matchTransfers(link, sends[link], list);
  for (const auto &[link, list] : sends)
    if (!problem && !recvs.count(link))
      matchTransfers(link, list, {});
}

/// Messages between two ranks carry no names: the n-th sent is the n-th
/// received.
void HappensBefore::matchTransfers(Link link, const std::vector<Transfer> &sent,
                                   const std::vector<Transfer> &received) {
  for (size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
    if (i >= sent.size() || i >= received.size()) {
      const Transfer &alone = i < sent.size() ? sent[i] : received[i];
      return fail("expected " + print(*getPeer(alone.action)) + " on " +
                      onRank(i < sent.size() ? link.second : link.first) +
                      " to meet " + print(alone.action) + ", got none",
                  {{alone.position, ""}});
    }
    const Transfer &send = sent[i], &recv = received[i];
    if (*getPeer(send.action) != recv.action)
      return fail("expected messages from " + onRank(link.first) + " to " +
                      onRank(link.second) +
                      " to be received in the order in which they are sent, "
                      "got " +
                      print(send.action) + " taken for " + print(recv.action),
                  {{recv.position, "takes " + print(send.action)},
                   {send.position, "sends it"}});
    Event sendBegin = getBegin(send.position), recvEnd = getEnd(recv.position);
    Event message = addMessage(link, sendBegin, recvEnd);
    needs[recvEnd].push_back({sendBegin, send.position, send.action});
    if (!sendsWait)
      continue;
    Event sendEnd = getEnd(send.position);
    events.addEdge(getBegin(recv.position), message);
    events.addEdge(message, sendEnd);
    needs[sendEnd].push_back(
        {getBegin(recv.position), recv.position, recv.action});
  }
}

/// What the first cell of a row that never ends waits for.
std::string HappensBefore::explainWait(Position stuck,
                                       const std::vector<bool> &done) const {
  for (Event event : {getBegin(stuck), getEnd(stuck)}) {
    auto found = needs.find(event);
    if (found == needs.end())
      continue;
    for (const Need &need : found->second)
      if (!done[need.event])
        return print(need.action) + " of " + onRank(need.position.rank);
  }
  return "";
}

std::optional<Problem> HappensBefore::findDeadlock() const {
  if (events.findCycle().empty())
    return std::nullopt;
  std::vector<bool> done(events.size());
  for (Event event : events.sortPrefix())
    done[event] = true;
  Problem deadlock;
  std::string waits;
  for (size_t rank = 0; rank < table.size(); ++rank)
    for (size_t column = 0; column < table[rank].size(); ++column) {
      Position position{rank, column};
      if (done[getEnd(position)])
        continue;
      std::string cell = print(table[rank][column]);
      std::string reason = explainWait(position, done);
      waits += (waits.empty() ? "" : "; ") + onRank(rank) + " at " + cell +
               " waits for " + reason;
      deadlock.marks.push_back({position, cell + " waits for " + reason});
      break;
    }
  deadlock.message =
      std::string("expected an order without deadlock, got ranks that wait for "
                  "each other") +
      (explicitTransfers && sendsWait ? " where a send waits for its receiver"
                                      : "") +
      ": " + waits;
  return deadlock;
}
