// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/LocalRank.h"

#include "runtime/comm/SharedMemoryCommunicator.h"

#include <algorithm>

namespace piper::runtime {

LocalRank::LocalRank(World &world, Device &device, uint32_t rank,
                     const std::vector<int> &cores)
    : world(world), number(rank), rankClass(world.classOf(rank)),
      events(new SharedWord[rankClass.numEvents]) {
  const plan::Plan &plan = world.plan();
  for (uint32_t c = 0; c < plan.communicators.size(); ++c) {
    uint32_t group = 0, position = 0;
    if (plan::findPosition(plan.communicators[c], rank, group, position))
      ownCommunicators.push_back(std::make_unique<SharedMemoryCommunicator>(
          world, rank, c, device.link(plan.communicators[c].name)));
    else
      ownCommunicators.push_back(nullptr);
    communicators.push_back(ownCommunicators.back().get());
  }
  prepare(device);
  Segment &segment = world.segment(rank);
  size_t nextCore = 0;
  for (uint32_t s = 0; s < rankClass.streams.size(); ++s) {
    const plan::Stream &record = rankClass.streams[s];
    StreamOptions options;
    options.name = record.name;
    options.budget = record.cores;
    options.workspaceBytes = record.workspaceBytes;
    for (uint32_t i = 0; i < record.cores && nextCore < cores.size(); ++i)
      options.cores.push_back(cores[nextCore++]);
    auto state = std::make_unique<StreamState>();
    state->stream = device.createStream(options);
    state->waiter =
        std::make_unique<Waiter>(world, rank, s, state->stream->timeline());
    ActionContext &context = state->context;
    context.stream = state->stream.get();
    context.waiter = state->waiter.get();
    context.arena = segment.space(plan::Space::Arena);
    context.state = segment.space(plan::Space::State);
    context.scalar = segment.space(plan::Space::Scalar);
    context.events = events.get();
    context.communicators = communicators.data();
    size_t most = 0;
    for (const auto &entry : entries)
      for (const PreparedAction &action : entry.second[s])
        most = std::max(most, action.operands.size());
    context.arguments.resize(most + 1);
    streams.push_back(std::move(state));
  }
}

const std::string &LocalRank::streamName(size_t stream) const {
  return rankClass.streams[stream].name;
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Operand LocalRank::resolve(const plan::Address &address) const {
  uint64_t offset = address.offset;
  if (address.communicator >= 0)
    offset += address.stride *
              communicators[size_t(address.communicator)]->position();
  return {address.space, address.index, offset};
}

void LocalRank::prepare(Device &device) {
  for (const auto &[name, record] : rankClass.entries) {
    std::vector<Actions> &prepared = entries[name];
    for (const std::vector<plan::Action> &actions : record) {
      prepared.emplace_back();
      for (const plan::Action &action : actions)
        prepared.back().push_back(prepareAction(device, action, record));
    }
  }
}

PreparedAction LocalRank::prepareAction(Device &device,
                                        const plan::Action &record,
                                        const plan::StreamActions &entry) {
  const plan::Plan &plan = world.plan();
  PreparedAction action;
  action.record = &record;
  action.execute = functionOf(record.opcode);
  uint64_t groupSize = 1;
  if (plan::isCollective(record.opcode)) {
    uint32_t group = 0, position = 0;
    const plan::Communicator &communicator = plan.communicators[record.imm[0]];
    plan::findPosition(communicator, number, group, position);
    groupSize = communicator.groups[group].size();
  }
  for (size_t i = 0; i < record.addresses.size(); ++i) {
    Operand operand = resolve(record.addresses[i]);
    uint64_t bytes = plan::extent(plan, record, i, groupSize);
    if (operand.space == plan::Space::Arena && bytes != 0)
      action.arenaEnd = std::max(action.arenaEnd, operand.offset + bytes);
    action.operands.push_back(operand);
  }
  if (record.opcode == plan::Opcode::Launch) {
    const std::string &symbol = plan.kernels[record.imm[0]].name;
    action.kernel = device.findKernel(symbol, record.label);
    if (!action.kernel)
      throw Error("kernel '" + symbol + "' is in none of the objects");
  }
  if (record.opcode == plan::Opcode::Release) {
    std::vector<uint32_t> predicates;
    for (const std::vector<plan::Action> &actions : entry)
      for (const plan::Action &other : actions)
        if (other.opcode == plan::Opcode::Send && other.imm[0] == record.imm[0])
          predicates.push_back(other.predicate);
    predicates.resize(record.imm[1] + 1);
    if (std::any_of(predicates.begin(), predicates.end(),
                    [](uint32_t predicate) { return predicate != 0; }))
      action.sendPredicates = std::move(predicates);
  }
  return action;
}

std::pair<uint64_t, uint64_t> LocalRank::inputRange(const std::string &entry,
                                                    uint32_t input) const {
  uint64_t first = ~uint64_t(0), last = 0;
  auto it = entries.find(entry);
  if (it == entries.end())
    return {0, 0};
  for (const Actions &actions : it->second)
    for (const PreparedAction &action : actions)
      for (size_t i = 0; i < action.operands.size(); ++i) {
        const Operand &operand = action.operands[i];
        if (operand.space != plan::Space::Input || operand.index != input)
          continue;
        uint64_t bytes = plan::extent(world.plan(), *action.record, i, 1);
        first = std::min(first, operand.offset);
        last = std::max(last, operand.offset + bytes);
      }
  return first <= last ? std::make_pair(first, last)
                       : std::make_pair(uint64_t(0), uint64_t(0));
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

void LocalRank::start(const std::string &entry, uint32_t run, uint64_t flags,
                      const std::vector<HostInput> &hostInputs, bool trace,
                      uint64_t begin, SharedWord &done) {
  inputs = hostInputs;
  for (Communicator *communicator : communicators)
    if (communicator)
      communicator->beginRun(run, flags);
  auto it = entries.find(entry);
  if (it == entries.end() || streams.empty()) {
    world.finishRun(number);
    return increment(done);
  }
  running.store(uint32_t(streams.size()));
  for (size_t s = 0; s < streams.size(); ++s) {
    StreamState &state = *streams[s];
    state.context.inputs = inputs.data();
    state.context.run = run;
    state.context.flags = flags;
    if (Timeline *timeline = state.stream->timeline())
      timeline->reach(begin);
    const Actions &actions = it->second[s];
    state.stream->enqueue([this, &state, &actions, trace, &done] {
      execute(state, actions, trace);
      if (running.fetch_sub(1) != 1)
        return;
      finish(state, actions.size());
      increment(done);
    });
  }
}

void LocalRank::execute(StreamState &state, const Actions &actions,
                        bool trace) {
  StreamStatus &status = state.waiter->streamStatus();
  status.phase.store(Phase::Running, std::memory_order_relaxed);
  uint64_t waited = state.waiter->waitedNs();
  try {
    executeAll(state, actions, trace);
    state.waiter->followExactly();
    status.phase.store(Phase::Idle, std::memory_order_relaxed);
  } catch (const Stopped &) {
    // The status stays: it says what the stream was doing.
  } catch (const std::exception &error) {
    uint32_t index = status.action.load(std::memory_order_relaxed);
    uint32_t stream = uint32_t(&status - world.segment(number).statuses());
    world.abort(number, FailureKind::Failed,
                "rank " + std::to_string(number) + " failed in " +
                    actionName(world, number, stream, index) + " (stream " +
                    streamName(stream) + "): " + error.what());
  }
  state.stats.waitedNs += state.waiter->waitedNs() - waited;
}

void LocalRank::executeAll(StreamState &state, const Actions &actions,
                           bool trace) {
  StreamStatus &status = state.waiter->streamStatus();
  ActionContext &context = state.context;
  StreamStats &stats = state.stats;
  if (trace) {
    state.trace.clear();
    state.trace.reserve(actions.size());
  }
  for (uint32_t i = 0; i < actions.size(); ++i) {
    const PreparedAction &action = actions[i];
    status.action.store(i, std::memory_order_relaxed);
    state.waiter->check();
    // A record marks even when skipped, so that no wait can hang on it.
    if (!plan::holds(action.record->predicate, context.flags) &&
        action.record->opcode != plan::Opcode::Record) {
      ++stats.skipped;
      continue;
    }
    ++stats.actions;
    stats.arenaEnd = std::max(stats.arenaEnd, action.arenaEnd);
    if (!trace) {
      action.execute(context, action);
      state.waiter->follow();
      continue;
    }
    uint64_t waited = state.waiter->waitedNs(), begin = state.waiter->now();
    action.execute(context, action);
    state.trace.push_back(
        {i, begin, state.waiter->now(), state.waiter->waitedNs() - waited});
    state.waiter->follow();
  }
}

void LocalRank::finish(StreamState &state, size_t numActions) {
  if (world.aborted(number))
    return;
  StreamStatus &status = state.waiter->streamStatus();
  status.action.store(uint32_t(numActions), std::memory_order_relaxed);
  status.phase.store(Phase::Running, std::memory_order_relaxed);
  try {
    for (Communicator *communicator : communicators)
      if (communicator)
        communicator->releaseAll(*state.waiter);
    state.waiter->followExactly();
  } catch (const Stopped &) {
    return;
  }
  status.phase.store(Phase::Idle, std::memory_order_relaxed);
  world.finishRun(number);
}

uint64_t LocalRank::finishedAt() const {
  uint64_t latest = 0;
  for (const std::unique_ptr<StreamState> &state : streams)
    latest = std::max(latest, state->waiter->stamp());
  return latest;
}

} // namespace piper::runtime
