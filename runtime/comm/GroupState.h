// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The shared state of one group of a communicator, in the segment of its first
// member, and of one channel, in the segment of its sender.
#ifndef PIPER_RUNTIME_COMM_GROUPSTATE_H
#define PIPER_RUNTIME_COMM_GROUPSTATE_H

#include "runtime/comm/SharedWord.h"

namespace piper::runtime {

/// What one member brings to a collective. Two slots per member, used in turn:
/// a member that begins the next collective does not disturb one that has not
/// yet woken up from this one.
struct alignas(64) MemberSlot {
  /// Number of the last collective it arrived at, counted from 1.
  std::atomic<uint32_t> sequence{0};
  /// Blocks of its part that were claimed.
  std::atomic<uint32_t> claimed{0};
  /// Offsets in the member's segment.
  uint64_t src = 0;
  uint64_t dst = 0;
  /// What it believes the collective to be.
  uint64_t count = 0;
  uint64_t flags = 0;
  uint32_t run = 0;
  uint32_t root = 0;
  uint8_t opcode = 0;
  uint8_t dtype = 0;
  uint8_t reduction = 0;
  /// When it arrived, if its device keeps a timeline.
  uint64_t time = 0;
};
static_assert(sizeof(MemberSlot) == 64);

/// Followed by 2 * size MemberSlots.
struct GroupState {
  /// Collectives whose members have all arrived.
  SharedWord begun;
  /// Collectives that are complete.
  SharedWord done;
  /// Arrivals so far, over all collectives.
  alignas(64) std::atomic<uint32_t> arrivals{0};
  /// Blocks finished, per slot parity.
  alignas(64) std::atomic<uint32_t> finished[2] = {};

  MemberSlot *slots(uint32_t parity, uint32_t size) {
    return reinterpret_cast<MemberSlot *>(this + 1) + parity * size;
  }
};

struct Message {
  /// Offset in the sender's segment.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  /// When it left and arrived, if devices keep timelines. The receiver writes
  /// `received` before it acknowledges.
  uint64_t sent = 0;
  uint64_t received = 0;
};

/// Followed by a ring of `capacity` (a power of two) Messages, which holds all
/// that one run sends: sending never waits.
struct ChannelState {
  SharedWord posted;
  SharedWord acknowledged;

  Message *ring() { return reinterpret_cast<Message *>(this + 1); }
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_GROUPSTATE_H
