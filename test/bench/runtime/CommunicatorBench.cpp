// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives and messages between two ranks, beside what a program would do
// that shares the same memory by hand: plain additions and copies between spin
// barriers. Iterations of both alternate.
#include "Measure.h"
#include "Ranks.h"
#include "runtime/Multiversion.h"

#include <cstdio>
#include <cstring>

using namespace piper;
using namespace piper::runtime;

namespace {

constexpr uint64_t kMaxBytes = 16 << 20;
/// Of each arena: the buffer, a result, and a page for the barrier.
constexpr uint64_t kResult = kMaxBytes;
constexpr uint64_t kBarrier = 2 * kMaxBytes;
constexpr uint64_t kArena = kBarrier + 4096;

/// Two ranks that never sleep.
class SpinBarrier {
public:
  explicit SpinBarrier(RankContext &rank)
      : words(reinterpret_cast<std::atomic<uint32_t> *>(
            rank.world->segment(0).space(plan::Space::Arena) + kBarrier)),
        place(rank.rank) {}
  void arrive() {
    words[16 * place].store(++number, std::memory_order_release);
    for (int spins = 0;
         words[16 * (1 - place)].load(std::memory_order_acquire) < number;)
      if (++spins > 2000)
        sched_yield();
      else
        __builtin_ia32_pause();
  }

private:
  std::atomic<uint32_t> *words;
  uint32_t place;
  uint32_t number = 0;
};

struct Buffers {
  float *own, *other, *ownResult, *result;
};

PIPER_MULTIVERSION void add(float *dst, const float *a, const float *b,
                            uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    dst[i] = a[i] + b[i];
}

/// Each rank adds up one half, and both copy the whole back.
void plainAllReduce(SpinBarrier &barrier, const Buffers &b, uint32_t place,
                    uint64_t bytes) {
  uint64_t half = bytes / 8, begin = half * place;
  const float *first = place == 0 ? b.own : b.other;
  const float *second = place == 0 ? b.other : b.own;
  add(b.result + begin, first + begin, second + begin, half);
  barrier.arrive();
  std::memcpy(b.own, b.result, bytes);
  barrier.arrive();
}

/// Rank 1 copies what lies ready at rank 0.
void plainSend(SpinBarrier &barrier, const Buffers &b, uint32_t place,
               uint64_t bytes) {
  if (place == 1)
    std::memcpy(b.ownResult, b.other, bytes);
  barrier.arrive();
}

void report(const char *ranks, const char *operation, uint64_t bytes,
            const Samples &ours, const Samples &plain) {
  std::printf("%-10s %-11s %9lu %10.2f %10.2f %8.2f %10.2f %10.2f\n", ranks,
              operation, (unsigned long)bytes, ours.median(), plain.median(),
              ours.median() / plain.median(), ours.least(), plain.least());
  std::fflush(stdout);
}

/// Alternates `ours` and `plain`, each between barriers.
template <typename Ours, typename Plain>
void compare(SpinBarrier &barrier, int repeats, const Ours &ours,
             const Plain &plain, Samples &ourTimes, Samples &plainTimes) {
  auto timed = [&](auto &work, Samples &samples, bool keep) {
    barrier.arrive();
    uint64_t begin = nowNs();
    work();
    if (keep)
      samples.micros.push_back(double(nowNs() - begin) * 1e-3);
  };
  for (int i = -5; i < repeats; ++i) {
    timed(ours, ourTimes, i >= 0);
    timed(plain, plainTimes, i >= 0);
  }
}

void bench(RankContext &rank, const char *name) {
  SpinBarrier barrier(rank);
  char *other = rank.world->segment(1 - rank.rank).space(plan::Space::Arena);
  char *first = rank.world->segment(0).space(plan::Space::Arena);
  Buffers buffers = {reinterpret_cast<float *>(rank.arena),
                     reinterpret_cast<float *>(other),
                     reinterpret_cast<float *>(rank.arena + kResult),
                     reinterpret_cast<float *>(first + kResult)};
  std::memset(rank.arena, 0, kBarrier);
  uint32_t run = 0;
  for (uint64_t bytes = 1 << 10; bytes <= kMaxBytes; bytes *= 4) {
    int repeats = bytes <= (64 << 10) ? 2001 : 201;
    Samples ours, plain;
    compare(
        barrier, repeats,
        [&] {
          rank.communicator(0).collective(
              *rank.waiter,
              {plan::Opcode::AllReduce, plan::DType::F32, plan::Reduction::Sum,
               bytes / 4, 0, rank.arena, rank.arena});
        },
        [&] { plainAllReduce(barrier, buffers, rank.rank, bytes); }, ours,
        plain);
    if (rank.rank == 0)
      report(name, "all_reduce", bytes, ours, plain);
    ours = plain = {};
    Communicator &channel = rank.communicator(1);
    compare(
        barrier, repeats,
        [&] {
          channel.beginRun(++run, 0);
          if (rank.rank == 0)
            channel.send(*rank.waiter, rank.arena, bytes);
          else
            channel.recv(*rank.waiter, rank.arena + kResult, bytes);
          channel.releaseAll(*rank.waiter);
          barrier.arrive();
        },
        [&] { plainSend(barrier, buffers, rank.rank, bytes); }, ours, plain);
    if (rank.rank == 1)
      report(name, "send", bytes, ours, plain);
  }
}

} // namespace

int main() {
  std::printf("%-10s %-11s %9s %10s %10s %8s %10s %10s\n", "ranks", "operation",
              "bytes", "us", "plain us", "ratio", "least", "plain least");
  std::fflush(stdout);
  Ranks(2, kArena).runProcesses([](RankContext &r) { bench(r, "processes"); });
  Ranks(2, kArena).runThreads([](RankContext &r) { bench(r, "threads"); });
}
