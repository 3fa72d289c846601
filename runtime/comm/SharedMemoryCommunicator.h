// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communication between ranks of one machine through their segments. A send is
// a note; the receiver copies from the sender's memory into its own. A
// collective reads from and writes to the members' memory directly.
#ifndef PIPER_RUNTIME_COMM_SHAREDMEMORYCOMMUNICATOR_H
#define PIPER_RUNTIME_COMM_SHAREDMEMORYCOMMUNICATOR_H

#include "runtime/Communicator.h"
#include "runtime/comm/Waiter.h"

namespace piper::runtime {

struct Link;

class SharedMemoryCommunicator final : public Communicator {
public:
  /// `rank` must be a local member of the communicator. With a link, nothing is
  /// moved, and everything takes the time that it takes there: a message passes
  /// the link after those before it and is there one latency later; a
  /// collective begins when the last member comes.
  SharedMemoryCommunicator(World &world, uint32_t rank, uint32_t communicator,
                           const Link *link = nullptr);

  void beginRun(uint32_t run, uint64_t flags) override;
  void send(Waiter &waiter, const void *src, uint64_t bytes) override;
  void recv(Waiter &waiter, void *dst, uint64_t bytes) override;
  void release(Waiter &waiter, uint64_t messages) override;
  void releaseAll(Waiter &waiter) override;
  void collective(Waiter &waiter, const Collective &operation) override;
  uint32_t position() const override { return place; }

private:
  uint64_t offsetOf(const void *pointer) const;
  void arrive(Waiter &waiter, const Collective &operation, uint32_t parity);
  void checkAgreement(uint32_t parity);
  /// Claims and runs blocks until none is left. The last block's finisher
  /// declares the collective complete.
  void work(const Collective &operation, uint32_t parity);
  void passLink(Waiter &waiter, const Collective &operation, uint32_t parity);
  void finishBlocks(uint32_t parity, uint32_t blocks, uint32_t total);
  int32_t missingMember(uint32_t parity) const;

  World &world;
  uint32_t rank;
  const plan::Communicator &record;
  const std::vector<uint32_t> &group;
  const Link *link;
  uint32_t place = 0;
  GroupState *state = nullptr;
  uint32_t run = 0;
  uint64_t flags = 0;
  /// Collectives done so far, which is the next one's number.
  uint32_t sequence = 0;

  ChannelState *channel = nullptr;
  uint32_t capacity = 0;
  uint32_t sent = 0;
  uint32_t sentBefore = 0;
  uint32_t received = 0;
  /// When the messages received so far had all passed the link.
  uint64_t linkFree = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_SHAREDMEMORYCOMMUNICATOR_H
