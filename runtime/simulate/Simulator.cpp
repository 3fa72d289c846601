// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/simulate/Simulator.h"

#include "runtime/Error.h"
#include "runtime/plan/Actions.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

namespace piper::runtime {
namespace {

/// A moment, and the action that made it.
struct Moment {
  uint64_t time = 0;
  int64_t cause = -1;
};

/// Streams that wait for one thing.
using Waiting = std::vector<uint32_t>;

struct Event {
  bool recorded = false;
  Moment moment;
  Waiting waiting;
};

/// One channel between two ranks.
struct Channel {
  const Link *link = nullptr;
  struct Message {
    uint64_t bytes;
    Moment sent;
  };
  std::vector<Message> messages;
  std::vector<Moment> received;
  uint64_t linkFree = 0;
  Waiting receivers, senders;
  /// Of the sends of the entry, skipped ones included: how many of the first k
  /// are not skipped.
  std::vector<uint64_t> sentBefore;
};

/// One group of a communicator.
struct Group {
  const Link *link = nullptr;
  uint64_t size = 0;
  struct Meeting {
    uint64_t arrived = 0;
    Moment last;
    Waiting waiting;
  };
  std::vector<Meeting> meetings;
  /// How many collectives each position has begun.
  std::vector<uint64_t> begun;
};

struct Stream {
  uint32_t rank, number;
  const std::vector<plan::Action> *actions;
  size_t next = 0;
  Moment now;
  bool isQueued = false;
};

uint64_t memoryBytes(const plan::Action &action) {
  switch (action.opcode) {
  case plan::Opcode::Copy:
  case plan::Opcode::FillZero:
    return action.imm[0];
  case plan::Opcode::Accumulate:
    return action.imm[1] * plan::byteWidth(plan::DType(action.imm[0]));
  default:
    return 0;
  }
}

class Simulator {
public:
  Simulator(const plan::Plan &plan, const DelayDevice &device,
            const std::string &entry, uint64_t flags);
  Simulation run();

private:
  void addRank(uint32_t rank, const plan::RankClass &rankClass,
               const plan::StreamActions &streams);
  bool step(Stream &stream);
  bool execute(Stream &stream, const plan::Action &action, Moment &ready,
               uint64_t &work);
  uint64_t bytesOf(const Stream &stream, const plan::Action &action) const;
  bool receive(Stream &stream, const plan::Action &action, Moment &ready,
               uint64_t &work);
  bool release(Stream &stream, const plan::Action &action, Moment &ready);
  bool meet(Stream &stream, const plan::Action &action, Moment &ready,
            uint64_t &work);
  void wake(Waiting &waiting);
  void wait(const Stream &stream, Waiting &waiting) {
    waiting.push_back(uint32_t(&stream - streams.data()));
  }
  Channel &channelOf(const Stream &stream, const plan::Action &action);
  uint64_t launchTime(const Stream &stream, const plan::Action &action);
  void finish();
  void traceBack();
  [[noreturn]] void reportStuck() const;
  std::string describe(const Stream &stream) const;

  const plan::Plan &plan;
  const DelayDevice &device;
  uint64_t flags;
  std::vector<Stream> streams;
  std::vector<std::vector<Event>> events; // by rank
  std::map<std::pair<uint32_t, uint32_t>, Channel> channels;
  std::map<std::pair<uint32_t, uint32_t>, Group> groups;
  std::unordered_map<const plan::Action *, uint64_t> launchTimes;
  std::deque<uint32_t> ready;
  Simulation result;
  int64_t last = -1;
};

Simulator::Simulator(const plan::Plan &plan, const DelayDevice &device,
                     const std::string &entry, uint64_t flags)
    : plan(plan), device(device), flags(flags), events(plan.worldSize) {
  for (const plan::RankClass &rankClass : plan.classes) {
    auto found = rankClass.entries.find(entry);
    for (uint32_t rank : rankClass.ranks)
      if (found != rankClass.entries.end())
        addRank(rank, rankClass, found->second);
  }
  if (streams.empty())
    throw Error("the plan has no entry '" + entry + "'");
}

void Simulator::addRank(uint32_t rank, const plan::RankClass &rankClass,
                        const plan::StreamActions &actions) {
  events[rank].resize(rankClass.numEvents);
  for (uint32_t number = 0; number < actions.size(); ++number) {
    streams.push_back({rank, number, &actions[number]});
    for (const plan::Action &action : actions[number])
      if (action.opcode == plan::Opcode::Send) {
        uint32_t group = 0, position = 0;
        uint32_t communicator = uint32_t(action.imm[0]);
        plan::findPosition(plan.communicators[communicator], rank, group,
                           position);
        std::vector<uint64_t> &sent =
            channels[{communicator, group}].sentBefore;
        if (sent.empty())
          sent.push_back(0);
        sent.push_back(sent.back() + plan::holds(action.predicate, flags));
      }
  }
}

Channel &Simulator::channelOf(const Stream &stream,
                              const plan::Action &action) {
  uint32_t group = 0, position = 0;
  uint32_t communicator = uint32_t(action.imm[0]);
  plan::findPosition(plan.communicators[communicator], stream.rank, group,
                     position);
  Channel &channel = channels[{communicator, group}];
  if (!channel.link)
    channel.link = device.link(plan.communicators[communicator].name);
  return channel;
}

uint64_t Simulator::launchTime(const Stream &stream,
                               const plan::Action &action) {
  auto [found, isNew] = launchTimes.try_emplace(&action, 0);
  if (isNew) {
    const plan::RankClass &rankClass =
        plan.classes[size_t(plan::classOf(plan, stream.rank))];
    found->second = device.launchTime(
        device.findKernel(plan.kernels[action.imm[0]].name, action.label),
        rankClass.streams[stream.number].cores);
  }
  return found->second;
}

void Simulator::wake(Waiting &waiting) {
  for (uint32_t stream : waiting)
    if (!streams[stream].isQueued) {
      streams[stream].isQueued = true;
      ready.push_back(stream);
    }
  waiting.clear();
}

bool Simulator::receive(Stream &stream, const plan::Action &action,
                        Moment &ready, uint64_t &work) {
  Channel &channel = channelOf(stream, action);
  size_t number = channel.received.size();
  if (number >= channel.messages.size()) {
    wait(stream, channel.receivers);
    return false;
  }
  const Channel::Message &message = channel.messages[number];
  if (message.sent.time > ready.time)
    ready = message.sent;
  // Its bytes pass after those of the messages before it.
  channel.linkFree = std::max(channel.linkFree, message.sent.time) +
                     channel.link->durationNs(message.bytes);
  uint64_t arrival = channel.linkFree + channel.link->latencyNs;
  work = std::max(arrival, ready.time) - ready.time;
  channel.received.push_back(
      {ready.time + work, int64_t(result.actions.size())});
  wake(channel.senders);
  return true;
}

bool Simulator::release(Stream &stream, const plan::Action &action,
                        Moment &ready) {
  Channel &channel = channelOf(stream, action);
  uint64_t before = channel.sentBefore[action.imm[1]];
  uint64_t messages = channel.sentBefore[action.imm[1] + 1];
  if (messages == before) // the send was skipped
    return true;
  if (channel.received.size() < messages) {
    wait(stream, channel.senders);
    return false;
  }
  if (channel.received[messages - 1].time > ready.time)
    ready = channel.received[messages - 1];
  return true;
}

bool Simulator::meet(Stream &stream, const plan::Action &action, Moment &ready,
                     uint64_t &work) {
  plan::CollectiveOperands operands = plan::collectiveOperands(action);
  const plan::Communicator &communicator =
      plan.communicators[operands.communicator];
  uint32_t number = 0, position = 0;
  plan::findPosition(communicator, stream.rank, number, position);
  Group &group = groups[{operands.communicator, number}];
  if (!group.link) {
    group.link = device.link(communicator.name);
    group.size = communicator.groups[number].size();
    group.begun.resize(group.size);
  }
  // Odd counts: has arrived and waits for the others.
  uint64_t &begun = group.begun[position];
  size_t sequence = begun / 2;
  if (group.meetings.size() <= sequence)
    group.meetings.resize(sequence + 1);
  Group::Meeting &meeting = group.meetings[sequence];
  if (begun % 2 == 0) {
    ++begun;
    ++meeting.arrived;
    if (meeting.last.cause < 0 || ready.time > meeting.last.time)
      meeting.last = ready;
    if (meeting.arrived == group.size)
      wake(meeting.waiting);
  }
  if (meeting.arrived < group.size) {
    wait(stream, meeting.waiting);
    return false;
  }
  ++begun;
  if (meeting.last.time > ready.time)
    ready = meeting.last;
  work =
      group.link->latencyNs + group.link->durationNs(bytesOf(stream, action));
  return true;
}

uint64_t Simulator::bytesOf(const Stream &stream,
                            const plan::Action &action) const {
  if (action.opcode == plan::Opcode::Recv)
    return action.imm[1];
  if (!plan::isCollective(action.opcode))
    return memoryBytes(action);
  plan::CollectiveOperands operands = plan::collectiveOperands(action);
  const plan::Communicator &communicator =
      plan.communicators[operands.communicator];
  uint32_t group = 0, position = 0;
  plan::findPosition(communicator, stream.rank, group, position);
  Collective operation = {action.opcode,  operands.dtype, operands.reduction,
                          operands.count, operands.root,  nullptr,
                          nullptr};
  return bytesOnLink(operation, communicator.groups[group].size());
}

bool Simulator::execute(Stream &stream, const plan::Action &action,
                        Moment &ready, uint64_t &work) {
  switch (action.opcode) {
  case plan::Opcode::Launch:
    work = launchTime(stream, action);
    return true;
  case plan::Opcode::Copy:
  case plan::Opcode::FillZero:
  case plan::Opcode::Accumulate:
    work = device.memoryTime(memoryBytes(action));
    return true;
  case plan::Opcode::Record: {
    Event &event = events[stream.rank][action.imm[0]];
    event.recorded = true;
    event.moment = {ready.time, int64_t(result.actions.size())};
    wake(event.waiting);
    return true;
  }
  case plan::Opcode::Wait: {
    Event &event = events[stream.rank][action.imm[0]];
    if (!event.recorded) {
      wait(stream, event.waiting);
      return false;
    }
    if (event.moment.time > ready.time)
      ready = event.moment;
    return true;
  }
  case plan::Opcode::Send: {
    Channel &channel = channelOf(stream, action);
    channel.messages.push_back(
        {action.imm[1], {ready.time, int64_t(result.actions.size())}});
    wake(channel.receivers);
    return true;
  }
  case plan::Opcode::Recv:
    return receive(stream, action, ready, work);
  case plan::Opcode::Release:
    return release(stream, action, ready);
  default:
    return meet(stream, action, ready, work);
  }
}

/// One action of the stream, if it need not wait.
bool Simulator::step(Stream &stream) {
  const plan::Action &action = (*stream.actions)[stream.next];
  bool isSkipped = !plan::holds(action.predicate, flags);
  if (isSkipped && action.opcode != plan::Opcode::Record) {
    ++stream.next;
    return true;
  }
  Moment begin = stream.now;
  uint64_t work = 0;
  if (!execute(stream, action, begin, work))
    return false;
  ++stream.next;
  if (isSkipped)
    return true;
  int64_t number = int64_t(result.actions.size());
  uint64_t index = uint64_t(&action - stream.actions->data());
  result.actions.push_back({stream.rank, stream.number, index, &action,
                            stream.now.time, begin.time + work,
                            begin.time - stream.now.time,
                            bytesOf(stream, action), begin.cause});
  stream.now = {begin.time + work, number};
  return true;
}

Simulation Simulator::run() {
  for (uint32_t i = 0; i < streams.size(); ++i) {
    streams[i].isQueued = true;
    ready.push_back(i);
  }
  while (!ready.empty()) {
    Stream &stream = streams[ready.front()];
    ready.pop_front();
    stream.isQueued = false;
    while (stream.next < stream.actions->size() && step(stream)) {
    }
  }
  finish();
  return std::move(result);
}

void Simulator::finish() {
  for (const Stream &stream : streams)
    if (stream.next < stream.actions->size())
      reportStuck();
  Moment end;
  for (const Stream &stream : streams)
    if (stream.now.time >= end.time)
      end = stream.now;
  // The end of an entry waits until all messages are received.
  for (const auto &[key, channel] : channels)
    for (const Moment &received : channel.received)
      if (received.time > end.time)
        end = received;
  result.duration = end.time;
  last = end.cause;
  traceBack();
}

void Simulator::traceBack() {
  std::vector<uint64_t> path;
  for (int64_t at = last; at >= 0; at = result.actions[at].cause)
    path.push_back(uint64_t(at));
  std::reverse(path.begin(), path.end());
  // Actions were found in the order in which streams could go on.
  std::vector<uint64_t> order(result.actions.size()), place(order.size());
  for (uint64_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
    const SimulatedAction &x = result.actions[a], &y = result.actions[b];
    return std::make_pair(x.rank, x.stream) < std::make_pair(y.rank, y.stream);
  });
  std::vector<SimulatedAction> sorted;
  for (uint64_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(result.actions[order[i]]);
  }
  for (SimulatedAction &action : sorted)
    if (action.cause >= 0)
      action.cause = int64_t(place[action.cause]);
  result.actions = std::move(sorted);
  for (uint64_t at : path)
    result.criticalPath.push_back(place[at]);
}

std::string Simulator::describe(const Stream &stream) const {
  const plan::Action &action = (*stream.actions)[stream.next];
  std::string text = "rank " + std::to_string(stream.rank) + " at " +
                     plan::name(action.opcode);
  return action.label.empty() ? text : text + " '" + action.label + "'";
}

void Simulator::reportStuck() const {
  std::string text = "ranks wait for each other for ever:";
  size_t shown = 0;
  for (const Stream &stream : streams)
    if (stream.next < stream.actions->size()) {
      if (++shown > 8) {
        text += " …";
        break;
      }
      text += (shown == 1 ? " " : ", ") + describe(stream);
    }
  throw Error(text);
}

} // namespace

Simulation simulate(const plan::Plan &plan, const DelayDevice &device,
                    const std::string &entry, uint64_t flags) {
  return Simulator(plan, device, entry, flags).run();
}

} // namespace piper::runtime
