// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_COMM_WAITER_H
#define PIPER_RUNTIME_COMM_WAITER_H

#include "runtime/Error.h"
#include "runtime/comm/Diagnosis.h"

namespace piper::runtime {

/// How one stream waits: awake for a moment, then asleep; shows what it waits
/// for, ends when the job fails, and gives up on a rank that stands still.
class Waiter {
public:
  Waiter(World &world, uint32_t rank, uint32_t stream)
      : world(world), rank(rank),
        status(world.segment(rank).statuses()[stream]) {}

  /// Returns once `word` reached `target`; throws Stopped if the job failed.
  /// `awaited()` says which rank it waits for right now, -1 = an own stream.
  template <typename Awaited>
  void until(SharedWord &word, uint32_t target, Awaited awaited) {
    if (reached(word, target))
      return;
    uint64_t begin = nowNs();
    if (!spinOn(word, target, world.spinNs()))
      sleep(word, target, awaited);
    waited += nowNs() - begin;
  }

  /// Throws Stopped if the job failed. Cheap: called before every action.
  void check() const {
    if (world.aborted(rank))
      throw Stopped();
  }

  /// Time spent waiting so far.
  uint64_t waitedNs() const { return waited; }
  StreamStatus &streamStatus() const { return status; }

private:
  static constexpr unsigned kTickMs = 50;

  template <typename Awaited>
  void sleep(SharedWord &word, uint32_t target, Awaited awaited) {
    Patience patience(world);
    int32_t whom = awaited();
    status.awaited.store(whom, std::memory_order_relaxed);
    status.phase.store(Phase::Waiting, std::memory_order_relaxed);
    while (!reached(word, target)) {
      check();
      sleepOn(word, target, kTickMs);
      if (reached(word, target))
        break;
      whom = awaited();
      status.awaited.store(whom, std::memory_order_relaxed);
      patience.check(whom);
    }
    status.phase.store(Phase::Running, std::memory_order_relaxed);
  }

  World &world;
  uint32_t rank;
  StreamStatus &status;
  uint64_t waited = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_WAITER_H
