// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/SharedMemoryCommunicator.h"

#include "runtime/comm/Blocks.h"
#include "runtime/comm/Link.h"

#include <algorithm>
#include <cstring>

namespace piper::runtime {
namespace {

/// Below this many bytes written, the last member to arrive does all the work:
/// each of the others then wakes up once, not twice.
constexpr uint64_t kSmallBytes = 64 << 10;

const std::vector<uint32_t> &groupOf(const plan::Communicator &record,
                                     uint32_t rank) {
  uint32_t group = 0, position = 0;
  if (!plan::findPosition(record, rank, group, position))
    throw Error("rank " + std::to_string(rank) +
                " is not a member of communicator '" + record.name + "'");
  return record.groups[group];
}

std::string text(const MemberSlot &slot) {
  return std::string(plan::name(plan::Opcode(slot.opcode))) + " " +
         plan::name(plan::Reduction(slot.reduction)) + " of " +
         std::to_string(slot.count) + " " +
         plan::name(plan::DType(slot.dtype)) + " with root " +
         std::to_string(slot.root) + " in run " + std::to_string(slot.run) +
         " with flags " + std::to_string(slot.flags);
}

} // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(World &world, uint32_t rank,
                                                   uint32_t communicator,
                                                   const Link *link)
    : world(world), rank(rank),
      record(world.plan().communicators[communicator]),
      group(groupOf(record, rank)), link(link) {
  while (group[place] != rank)
    ++place;
  Segment &first = world.segment(group[0]);
  state = reinterpret_cast<GroupState *>(first.base() +
                                         first.layout().groups[communicator]);
  capacity = first.layout().capacities[communicator];
  if (capacity)
    channel = reinterpret_cast<ChannelState *>(
        first.base() + first.layout().channels[communicator]);
}

void SharedMemoryCommunicator::beginRun(uint32_t number, uint64_t set) {
  run = number;
  flags = set;
  sentBefore = sent;
}

uint64_t SharedMemoryCommunicator::offsetOf(const void *pointer) const {
  return uint64_t(static_cast<const char *>(pointer) -
                  world.segment(rank).base());
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

void SharedMemoryCommunicator::send(Waiter &waiter, const void *src,
                                    uint64_t bytes) {
  if (sent - sentBefore >= capacity)
    throw Error("channel '" + record.name + "' sends more than " +
                std::to_string(capacity) + " messages in one run");
  channel->ring()[sent & (capacity - 1)] = {offsetOf(src), bytes,
                                            waiter.stamp(), 0};
  ++sent;
  signal(channel->posted, sent);
}

void SharedMemoryCommunicator::recv(Waiter &waiter, void *dst, uint64_t bytes) {
  uint32_t sender = group[0];
  waiter.until(channel->posted, received + 1, [&] { return int32_t(sender); });
  Message &message = channel->ring()[received & (capacity - 1)];
  Segment &from = world.segment(sender);
  if (message.bytes != bytes || message.offset + bytes > from.layout().total)
    throw Error("channel '" + record.name + "': expected a message of " +
                std::to_string(bytes) + " bytes, got " +
                std::to_string(message.bytes) + " from rank " +
                std::to_string(sender));
  if (link) {
    linkFree = std::max(linkFree, message.sent) + link->durationNs(bytes);
    uint64_t arrival = linkFree + link->latencyNs;
    // Waiting ends when the message is sent; then it passes the link.
    waiter.reach(message.sent);
    waiter.pass(std::max(arrival, waiter.stamp()) - waiter.stamp());
    waiter.follow();
    message.received = waiter.stamp();
  } else {
    std::memcpy(dst, from.base() + message.offset, bytes);
  }
  ++received;
  signal(channel->acknowledged, received);
}

void SharedMemoryCommunicator::release(Waiter &waiter, uint64_t messages) {
  waiter.until(channel->acknowledged, sentBefore + uint32_t(messages),
               [&] { return int32_t(group[1]); });
  uint32_t last = sentBefore + uint32_t(messages) - 1;
  if (link)
    waiter.reach(channel->ring()[last & (capacity - 1)].received);
}

void SharedMemoryCommunicator::releaseAll(Waiter &waiter) {
  if (sent != sentBefore)
    release(waiter, sent - sentBefore);
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

void SharedMemoryCommunicator::collective(Waiter &waiter,
                                          const Collective &operation) {
  uint32_t parity = sequence & 1;
  bool isSmall = Blocks::volume(operation, group.size()) <= kSmallBytes;
  auto missing = [&] { return missingMember(parity); };
  arrive(waiter, operation, parity);
  if (!isSmall && !link) {
    waiter.until(state->begun, sequence + 1, missing);
    work(operation, parity);
  }
  waiter.until(state->done, sequence + 1, missing);
  if (link)
    passLink(waiter, operation, parity);
  ++sequence;
}

void SharedMemoryCommunicator::passLink(Waiter &waiter,
                                        const Collective &operation,
                                        uint32_t parity) {
  uint64_t size = group.size(), begin = 0;
  for (uint32_t member = 0; member < size; ++member)
    begin = std::max(begin, state->slots(parity, uint32_t(size))[member].time);
  waiter.reach(begin);
  waiter.pass(link->latencyNs + link->durationNs(bytesOnLink(operation, size)));
  waiter.follow();
}

void SharedMemoryCommunicator::arrive(Waiter &waiter,
                                      const Collective &operation,
                                      uint32_t parity) {
  uint32_t size = uint32_t(group.size());
  MemberSlot &slot = state->slots(parity, size)[place];
  slot.src = offsetOf(operation.src);
  slot.dst = offsetOf(operation.dst);
  slot.count = operation.count;
  slot.flags = flags;
  slot.run = run;
  slot.root = operation.root;
  slot.opcode = uint8_t(operation.opcode);
  slot.dtype = uint8_t(operation.dtype);
  slot.reduction = uint8_t(operation.reduction);
  slot.time = waiter.stamp();
  slot.sequence.store(sequence + 1, std::memory_order_release);
  uint32_t last = (sequence + 1) * size - 1;
  if (state->arrivals.fetch_add(1, std::memory_order_acq_rel) != last)
    return;
  // All are here, so nobody is still busy with the last use of these slots.
  checkAgreement(parity);
  for (uint32_t member = 0; member < size; ++member)
    state->slots(parity, size)[member].claimed.store(0);
  state->finished[parity].store(0);
  if (link)
    signal(state->done, sequence + 1);
  else if (Blocks::volume(operation, size) <= kSmallBytes)
    work(operation, parity);
  else
    signal(state->begun, sequence + 1);
  waiter.check();
}

void SharedMemoryCommunicator::checkAgreement(uint32_t parity) {
  uint32_t size = uint32_t(group.size());
  const MemberSlot *slots = state->slots(parity, size);
  for (uint32_t member = 1; member < size; ++member) {
    const MemberSlot &a = slots[0], &b = slots[member];
    if (a.opcode == b.opcode && a.count == b.count && a.dtype == b.dtype &&
        a.reduction == b.reduction && a.root == b.root && a.run == b.run &&
        a.flags == b.flags)
      continue;
    throw Error("ranks disagree on communicator '" + record.name + "': rank " +
                std::to_string(group[0]) + " issues " + text(a) + ", rank " +
                std::to_string(group[member]) + " issues " + text(b));
  }
}

void SharedMemoryCommunicator::work(const Collective &operation,
                                    uint32_t parity) {
  uint32_t size = uint32_t(group.size());
  MemberSlot *slots = state->slots(parity, size);
  std::vector<char *> sources(size), destinations(size);
  for (uint32_t member = 0; member < size; ++member) {
    char *base = world.segment(group[member]).base();
    sources[member] = base + slots[member].src;
    destinations[member] = base + slots[member].dst;
  }
  Blocks blocks(operation, std::move(sources), std::move(destinations));
  uint32_t total = blocks.total(), finished = 0;
  if (total == 0)
    return signal(state->done, sequence + 1);
  for (uint32_t i = 0; i < size; ++i) {
    uint32_t member = (place + i) % size;
    uint32_t own = blocks.ofMember(member);
    for (;;) {
      uint32_t block =
          slots[member].claimed.fetch_add(1, std::memory_order_relaxed);
      if (block >= own)
        break;
      blocks.execute(member, block);
      ++finished;
    }
  }
  finishBlocks(parity, finished, total);
}

void SharedMemoryCommunicator::finishBlocks(uint32_t parity, uint32_t blocks,
                                            uint32_t total) {
  if (blocks == 0)
    return;
  uint32_t before =
      state->finished[parity].fetch_add(blocks, std::memory_order_acq_rel);
  if (before + blocks == total)
    signal(state->done, sequence + 1);
}

int32_t SharedMemoryCommunicator::missingMember(uint32_t parity) const {
  uint32_t size = uint32_t(group.size());
  const MemberSlot *slots = state->slots(parity, size);
  for (uint32_t member = 0; member < size; ++member)
    if (!reached(slots[member].sequence.load(std::memory_order_acquire),
                 sequence + 1))
      return int32_t(group[member]);
  // All are here: it waits for whoever still works.
  return int32_t(group[(place + 1) % size]);
}

} // namespace piper::runtime
