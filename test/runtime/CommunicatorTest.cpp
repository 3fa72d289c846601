// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every communicator must do, with ranks as threads of one process and as
// processes, moving bytes or over a link of stated speed. Expected values are
// formulas of rank, position and index.
#include "Check.h"
#include "Ranks.h"
#include "runtime/comm/Float16.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace piper;
using namespace piper::runtime;

namespace {

constexpr uint64_t kSpaceBytes = 4 << 20;

/// Contribution of `rank` at index `i`: small integers, exact in every type.
double value(uint32_t rank, uint64_t i) {
  return double((rank * 7 + i * 3) % 13) - 6;
}

template <typename T> T convert(double x) { return T(float(x)); }
template <> int64_t convert(double x) { return int64_t(x); }
template <> int32_t convert(double x) { return int32_t(x); }
template <> double convert(double x) { return x; }
template <typename T> double back(T x) { return double(float(x)); }
template <> double back(int64_t x) { return double(x); }
template <> double back(int32_t x) { return double(x); }
template <> double back(double x) { return x; }

/// All collectives on one type and count. `inPlace` shares the buffers as far
/// as each collective allows.
template <typename T>
void collectives(RankContext &rank, plan::DType dtype, uint64_t count,
                 bool inPlace) {
  uint32_t size = rank.size, place = rank.rank;
  T *src = reinterpret_cast<T *>(rank.arena);
  T *dst = reinterpret_cast<T *>(rank.arena + kSpaceBytes / 2);
  auto fill = [&](T *target, uint64_t first, uint64_t number) {
    for (uint64_t i = 0; i < number; ++i)
      target[i] = convert<T>(value(place, first + i));
  };
  auto run = [&](plan::Opcode opcode, T *from, T *to, uint32_t root,
                 plan::Reduction reduction = plan::Reduction::Sum) {
    rank.communicator(0).collective(
        *rank.waiter, {opcode, dtype, reduction, count, root, from, to});
  };
  auto sum = [&](uint64_t i) {
    double total = 0;
    for (uint32_t r = 0; r < size; ++r)
      total += value(r, i);
    return total;
  };

  T *target = inPlace ? src : dst;
  fill(src, 0, count);
  run(plan::Opcode::AllReduce, src, target, 0);
  for (uint64_t i = 0; i < count; ++i)
    CHECK(back(target[i]) == sum(i));

  fill(src, 0, count);
  run(plan::Opcode::AllReduce, src, target, 0, plan::Reduction::Max);
  for (uint64_t i = 0; i < count; ++i) {
    double most = value(0, i);
    for (uint32_t r = 1; r < size; ++r)
      most = std::max(most, value(r, i));
    CHECK(back(target[i]) == most);
  }

  fill(src, 0, count * size);
  target = inPlace ? src + place * count : dst;
  run(plan::Opcode::ReduceScatter, src, target, 0);
  for (uint64_t i = 0; i < count; ++i)
    CHECK(back(target[i]) == sum(place * count + i));

  T *from = inPlace ? dst + place * count : src;
  fill(from, 0, count);
  run(plan::Opcode::AllGather, from, dst, 0);
  for (uint32_t r = 0; r < size; ++r)
    for (uint64_t i = 0; i < count; ++i)
      CHECK(back(dst[r * count + i]) == value(r, i));

  target = inPlace ? src : dst;
  for (uint32_t root = 0; root < size; ++root) {
    fill(src, 0, count);
    run(plan::Opcode::Broadcast, src, target, root);
    for (uint64_t i = 0; i < count; ++i)
      CHECK(back(target[i]) == value(root, i));
  }

  fill(src, 0, count * size);
  run(plan::Opcode::AllToAll, src, dst, 0);
  for (uint32_t r = 0; r < size; ++r)
    for (uint64_t i = 0; i < count; ++i)
      CHECK(back(dst[r * count + i]) == value(r, place * count + i));
}

void allCollectives(RankContext &rank) {
  for (uint64_t count : {0, 1, 7, 1000, 40001})
    for (bool inPlace : {false, true}) {
      collectives<float>(rank, plan::DType::F32, count, inPlace);
      collectives<double>(rank, plan::DType::F64, count, inPlace);
      collectives<int64_t>(rank, plan::DType::I64, count, inPlace);
      collectives<int32_t>(rank, plan::DType::I32, count, inPlace);
      collectives<BFloat16>(rank, plan::DType::BF16, count, inPlace);
      collectives<Float16>(rank, plan::DType::F16, count, inPlace);
    }
}

/// The sum is that of a loop over positions in f32, to the bit, on every rank.
void orderOfSums(RankContext &rank) {
  constexpr uint64_t count = 50000;
  auto random = [](uint32_t r) {
    std::mt19937 generator(r + 1);
    std::vector<float> values(count);
    for (float &x : values)
      x = std::ldexp(float(int32_t(generator())), int(generator() % 40) - 50);
    return values;
  };
  float *buffer = reinterpret_cast<float *>(rank.arena);
  std::vector<float> mine = random(rank.rank), expected = random(0);
  for (uint32_t r = 1; r < rank.size; ++r) {
    std::vector<float> other = random(r);
    for (uint64_t i = 0; i < count; ++i)
      expected[i] += other[i];
  }
  for (int trial = 0; trial < 5; ++trial) {
    std::memcpy(buffer, mine.data(), count * sizeof(float));
    rank.communicator(0).collective(
        *rank.waiter, {plan::Opcode::AllReduce, plan::DType::F32,
                       plan::Reduction::Sum, count, 0, buffer, buffer});
    CHECK(std::memcmp(buffer, expected.data(), count * sizeof(float)) == 0);
  }
}

/// bf16 is summed in f32 and rounded once: 256 + 1 + 1 is 258, while rounding
/// after each addition would give 256.
void widerSums(RankContext &rank) {
  BFloat16 *buffer = reinterpret_cast<BFloat16 *>(rank.arena);
  buffer[0] = BFloat16(rank.rank == 0 ? 256.0f : 1.0f);
  rank.communicator(0).collective(*rank.waiter,
                                  {plan::Opcode::AllReduce, plan::DType::BF16,
                                   plan::Reduction::Sum, 1, 0, buffer, buffer});
  float exact = 256.0f + float(rank.size - 1);
  CHECK(float(buffer[0]) == float(BFloat16(exact)));
}

/// Messages around a ring: more than one in flight, in order, of all sizes; a
/// message is complete when it is received and its buffer free when released.
void messages(RankContext &rank) {
  if (rank.size < 2)
    return;
  uint32_t next = rank.rank, previous = (rank.rank + rank.size - 1) % rank.size;
  Communicator &out = rank.communicator(1 + next);
  Communicator &in = rank.communicator(1 + previous);
  for (uint32_t run = 1; run <= 20; ++run) {
    out.beginRun(run, 0);
    for (uint32_t k = 0; k < kMessages; ++k) {
      char *buffer = rank.arena + k * 8192;
      std::memset(buffer, int(rank.rank * 50 + run + k), k * 1000);
      out.send(*rank.waiter, buffer, k * 1000);
    }
    for (uint32_t k = 0; k < kMessages; ++k) {
      char *buffer = rank.arena + kSpaceBytes / 2;
      in.recv(*rank.waiter, buffer, k * 1000);
      for (uint32_t i = 0; i < k * 1000; ++i)
        CHECK(buffer[i] == char(previous * 50 + run + k));
      if (k == 1)
        out.release(*rank.waiter, 1);
    }
    out.releaseAll(*rank.waiter);
  }
}

/// Small and large collectives back to back, with ranks that come late.
void mixedTiming(RankContext &rank) {
  std::mt19937 random(rank.rank + 1);
  float *buffer = reinterpret_cast<float *>(rank.arena);
  for (int round = 0; round < 300; ++round) {
    if (random() % 8 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    uint64_t count = round % 3 == 0 ? 30000 : 5;
    for (uint64_t i = 0; i < count; ++i)
      buffer[i] = float(rank.rank + i % 5);
    rank.communicator(0).collective(
        *rank.waiter, {plan::Opcode::AllReduce, plan::DType::F32,
                       plan::Reduction::Sum, count, 0, buffer, buffer});
    float ranks = float(rank.size * (rank.size - 1) / 2);
    for (uint64_t i = 0; i < count; ++i)
      CHECK(buffer[i] == ranks + float(rank.size * (i % 5)));
  }
}

/// Two streams of each rank use two communicators with equal members, in
/// opposite order on odd ranks: neither waits for the other.
void twoStreams(RankContext &rank) {
  float *a = reinterpret_cast<float *>(rank.arena);
  float *b = reinterpret_cast<float *>(rank.arena + kSpaceBytes / 2);
  auto reduce = [&](Communicator &communicator, Waiter &waiter, float *x) {
    for (int round = 0; round < 50; ++round) {
      x[0] = 1;
      communicator.collective(waiter,
                              {plan::Opcode::AllReduce, plan::DType::F32,
                               plan::Reduction::Sum, 1, 0, x, x});
      CHECK(x[0] == float(rank.size));
    }
  };
  uint32_t last = rank.numCommunicators() - 1;
  Waiter second(*rank.world, rank.rank, 1);
  auto other = [&] { reduce(rank.communicator(last), second, b); };
  if (rank.rank % 2) {
    std::thread thread(other);
    reduce(rank.communicator(0), *rank.waiter, a);
    thread.join();
  } else {
    std::thread thread([&] { reduce(rank.communicator(0), *rank.waiter, a); });
    other();
    thread.join();
  }
}

/// No member is done with a collective before the last one came, and none with
/// a message before it left.
void nobodyLeavesEarly(RankContext &rank) {
  char *first = rank.world->segment(0).space(plan::Space::Arena);
  auto *arrived = reinterpret_cast<std::atomic<uint32_t> *>(first);
  auto *left = arrived + 1;
  char *buffer = rank.arena + 4096;
  std::mt19937 random(rank.rank + 1);
  for (uint32_t round = 1; round <= 100; ++round) {
    if (random() % 8 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    arrived->fetch_add(1);
    rank.communicator(0).collective(
        *rank.waiter, {plan::Opcode::AllReduce, plan::DType::F32,
                       plan::Reduction::Sum, 256, 0, buffer, buffer});
    CHECK(arrived->load() >= round * rank.size);
    if (rank.size == 1 || rank.rank > 1)
      continue;
    Communicator &channel = rank.communicator(1);
    if (rank.rank == 0) {
      channel.beginRun(round, 0);
      left->store(round);
      channel.send(*rank.waiter, buffer, 8);
      channel.releaseAll(*rank.waiter);
    } else {
      channel.recv(*rank.waiter, buffer, 8);
      CHECK(left->load() >= round);
    }
  }
}

void suite(RankContext &rank) {
  allCollectives(rank);
  orderOfSums(rank);
  widerSums(rank);
  messages(rank);
  mixedTiming(rank);
  twoStreams(rank);
}

/// A send returns although nobody receives yet.
void sendLeavesFirst(const Link *link) {
  Ranks ranks(2, kSpaceBytes, {}, link);
  std::atomic<bool> sent{false};
  ranks.runThreads([&](RankContext &rank) {
    if (rank.rank == 0) {
      rank.communicator(1).send(*rank.waiter, rank.arena, 4096);
      sent.store(true);
    } else {
      // Asks only after the send has returned: hangs if sends wait.
      while (!sent.load())
        std::this_thread::yield();
      rank.communicator(1).recv(*rank.waiter, rank.arena, 4096);
    }
  });
}

void disagreement(const Link *link) {
  Ranks ranks(2, kSpaceBytes, {}, link);
  std::atomic<int> failed{0};
  ranks.runThreads([&](RankContext &rank) {
    float *x = reinterpret_cast<float *>(rank.arena);
    try {
      rank.communicator(0).collective(
          *rank.waiter, {plan::Opcode::AllReduce, plan::DType::F32,
                         plan::Reduction::Sum, 1 + rank.rank, 0, x, x});
      CHECK(false);
    } catch (const Error &error) {
      CHECK_CONTAINS(error.what(), "rank 1 issues all_reduce sum of 2 f32");
      rank.world->abort(rank.rank, FailureKind::Failed, error.what());
      ++failed;
    } catch (const Stopped &) {
      ++failed;
    }
  });
  CHECK(failed == 2);
}

/// A member that never comes is named when the time is over.
void absence(const Link *link) {
  WorldOptions options;
  options.timeoutSeconds = 0.3;
  Ranks ranks(3, kSpaceBytes, options, link);
  ranks.runThreads([&](RankContext &rank) {
    if (rank.rank == 1)
      return;
    float *x = reinterpret_cast<float *>(rank.arena);
    bool stopped = false;
    try {
      rank.communicator(0).collective(
          *rank.waiter, {plan::Opcode::AllReduce, plan::DType::F32,
                         plan::Reduction::Sum, 1, 0, x, x});
    } catch (const Stopped &) {
      stopped = true;
    }
    CHECK(stopped);
    CHECK_CONTAINS(rank.world->failure()->message,
                   "rank 1 made no progress for 0.3 s");
  });
}

} // namespace

int main() {
  for (uint32_t size : {1, 2, 3, 4}) {
    Ranks(size, kSpaceBytes).runThreads(suite);
#ifndef __SANITIZE_THREAD__
    Ranks(size, kSpaceBytes).runProcesses(suite);
#endif
  }
  const Link link = {10000, 0.1};
  for (const Link *each : {static_cast<const Link *>(nullptr), &link}) {
    for (uint32_t size : {1, 2, 4}) {
      Ranks(size, kSpaceBytes, {}, each).runThreads(nobodyLeavesEarly);
#ifndef __SANITIZE_THREAD__
      Ranks(size, kSpaceBytes, {}, each).runProcesses(nobodyLeavesEarly);
#endif
    }
    sendLeavesFirst(each);
    disagreement(each);
    absence(each);
  }
}
