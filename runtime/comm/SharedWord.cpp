// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/SharedWord.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace piper::runtime {
namespace {

// Not FUTEX_PRIVATE: the word may be mapped by several processes.
long futex(std::atomic<uint32_t> &word, int operation, uint32_t value,
           const timespec *timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), operation,
                 value, timeout, nullptr, 0);
}

} // namespace

uint64_t nowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

void sleepUntilNs(uint64_t time) {
  timespec until = {time_t(time / 1000000000u), long(time % 1000000000u)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

void signal(SharedWord &word, uint32_t value) {
  // Sequentially consistent on both sides: either this sees the waiter, or the
  // waiter sees the value before it sleeps.
  word.value.store(value, std::memory_order_seq_cst);
  if (word.waiters.load(std::memory_order_seq_cst) != 0)
    futex(word.value, FUTEX_WAKE, INT_MAX, nullptr);
}

void increment(SharedWord &word) {
  word.value.fetch_add(1, std::memory_order_seq_cst);
  if (word.waiters.load(std::memory_order_seq_cst) != 0)
    futex(word.value, FUTEX_WAKE, INT_MAX, nullptr);
}

void sleepOn(SharedWord &word, uint32_t target, unsigned milliseconds) {
  word.waiters.fetch_add(1, std::memory_order_seq_cst);
  uint32_t seen = word.value.load(std::memory_order_seq_cst);
  if (!reached(seen, target)) {
    timespec timeout = {time_t(milliseconds / 1000),
                        long(milliseconds % 1000) * 1000000};
    futex(word.value, FUTEX_WAIT, seen, &timeout);
  }
  word.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

bool spinOn(const SharedWord &word, uint32_t target, uint64_t nanoseconds) {
  constexpr int kPauses = 32;
  uint64_t end = 0;
  do {
    for (int i = 0; i < kPauses; ++i) {
      if (reached(word, target))
        return true;
      __builtin_ia32_pause();
    }
    // The word may be waiting for a thread that waits for this core.
    if (end != 0)
      sched_yield();
    else
      end = nowNs() + nanoseconds;
  } while (nowNs() < end);
  return reached(word, target);
}

} // namespace piper::runtime
