// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A counter that threads of any process wait on. Counters only grow (modulo
// 2^32, compared by distance), so steps need no reset.
#ifndef PIPER_RUNTIME_COMM_SHAREDWORD_H
#define PIPER_RUNTIME_COMM_SHAREDWORD_H

#include <atomic>
#include <cstdint>

namespace piper::runtime {

/// Zero-filled memory is a valid word. One cache line, so that polling one word
/// does not disturb another.
struct alignas(64) SharedWord {
  std::atomic<uint32_t> value{0};
  /// Threads about to sleep or asleep; saves the system call if there is none.
  std::atomic<uint32_t> waiters{0};
  /// For who publishes: when, if its device keeps a timeline. Written before
  /// the value.
  uint64_t stamp = 0;
};
static_assert(sizeof(SharedWord) == 64);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline bool reached(uint32_t value, uint32_t target) {
  return int32_t(value - target) >= 0;
}
inline bool reached(const SharedWord &word, uint32_t target) {
  return reached(word.value.load(std::memory_order_acquire), target);
}

/// Publishes `value` and wakes who waits for it.
void signal(SharedWord &word, uint32_t value);

/// Adds one and wakes who waits; for words that several threads advance.
void increment(SharedWord &word);

/// Sleeps until the word reached `target`, something woke it, or about
/// `milliseconds` passed. The caller checks and repeats.
void sleepOn(SharedWord &word, uint32_t target, unsigned milliseconds);

/// Busy-waits for at most `nanoseconds`, giving the core to others that want
/// it. True if the word reached `target`.
bool spinOn(const SharedWord &word, uint32_t target, uint64_t nanoseconds);

/// CLOCK_MONOTONIC, which all processes of a machine share.
uint64_t nowNs();
void sleepUntilNs(uint64_t time);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_SHAREDWORD_H
