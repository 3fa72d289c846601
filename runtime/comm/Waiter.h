// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_COMM_WAITER_H
#define PIPER_RUNTIME_COMM_WAITER_H

#include "runtime/Error.h"
#include "runtime/Timeline.h"
#include "runtime/comm/Diagnosis.h"

namespace piper::runtime {

/// How one stream waits: awake for a moment, then asleep; shows what it waits
/// for, ends when the job fails, and gives up on a rank that stands still. On a
/// device that keeps a timeline it also waits for time to pass.
class Waiter {
public:
  Waiter(World &world, uint32_t rank, uint32_t stream,
         Timeline *timeline = nullptr)
      : world(world), rank(rank),
        status(world.segment(rank).statuses()[stream]), timeline(timeline) {}

  /// Returns once `word` reached `target`; throws Stopped if the job failed.
  /// `awaited()` says which rank it waits for right now, -1 = an own stream.
  template <typename Awaited>
  void until(SharedWord &word, uint32_t target, Awaited awaited) {
    if (reached(word, target))
      return;
    uint64_t begin = nowNs();
    if (!spinOn(word, target, world.spinNs()))
      sleep(word, target, awaited);
    if (!timeline)
      waited += nowNs() - begin;
  }

  /// The time as this stream sees it.
  uint64_t now() const { return timeline ? timeline->now() : nowNs(); }
  /// The timeline's time, 0 without one: what others may have to wait for.
  uint64_t stamp() const { return timeline ? timeline->now() : 0; }
  /// What the stream waited for happened when somebody's timeline was there.
  void reach(uint64_t stamp) {
    if (!timeline || stamp <= timeline->now())
      return;
    waited += stamp - timeline->now();
    timeline->reach(stamp);
  }
  /// Something takes its stated time.
  void pass(uint64_t nanoseconds) {
    if (timeline)
      timeline->advance(nanoseconds);
  }
  /// Sleeps until the clock is where the timeline is, or nearly; throws Stopped
  /// if the job failed.
  void follow() {
    if (timeline)
      sleepUntil(timeline->now(), kNearNs);
  }
  void followExactly() {
    if (timeline)
      sleepUntil(timeline->now(), 0);
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
  /// Not worth a sleep: the thread may run ahead of its timeline by so much.
  static constexpr uint64_t kNearNs = 20000;

  void sleepUntil(uint64_t time, uint64_t nearNs) {
    for (;;) {
      uint64_t now = nowNs();
      if (now + nearNs >= time)
        return;
      check();
      sleepUntilNs(std::min(time, now + kTickMs * 1000000));
    }
  }

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
  Timeline *timeline;
  uint64_t waited = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_WAITER_H
