// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What hosts tell each other between runs, and the fingerprints that they
// compare. Expected values are formulas of rank and round.
#include "Check.h"
#include "Ranks.h"
#include "runtime/Fingerprint.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>

using namespace piper;
using namespace piper::runtime;

namespace {

/// What `rank` says in `round`: lengths around those of one part, and empty.
std::string saying(uint32_t rank, uint32_t round) {
  const uint64_t lengths[] = {8,
                              0,
                              ExchangePart::kBytes - 1,
                              ExchangePart::kBytes,
                              ExchangePart::kBytes + 1,
                              3 * ExchangePart::kBytes,
                              5 * ExchangePart::kBytes + 7};
  std::string text(lengths[(rank + round) % 7], 0);
  for (uint64_t i = 0; i < text.size(); ++i)
    text[i] = char(rank * 31 + round * 7 + i * 3);
  return text;
}

void everybodyHears(RankContext &rank) {
  std::mt19937 random(rank.rank + 1);
  for (uint32_t round = 0; round < 200; ++round) {
    if (random() % 8 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    std::vector<std::string> heard =
        rank.world->exchange(saying(rank.rank, round), {});
    CHECK(heard.size() == rank.size);
    for (uint32_t r = 0; r < heard.size(); ++r)
      CHECK(heard[r] == saying(r, round));
    if (round % 5 == 0)
      rank.world->barrier({});
  }
}

/// Nobody waits to offer. What differs in the first bytes is seen by all who
/// collected; streams then stop, and hosts still hear each other.
void offers(RankContext &rank) {
  World &world = *rank.world;
  for (uint32_t round = 0; round < 50; ++round) {
    // Behind the bytes that are to be equal each says its own.
    CHECK(world.offer("round   " + std::to_string(rank.rank + round)));
    std::vector<std::string> heard = world.collect({});
    for (uint32_t r = 0; r < rank.size; ++r)
      CHECK(heard[r] == "round   " + std::to_string(r + round));
    CHECK(!world.offersDiffer());
  }
  world.offer(rank.rank == 1 ? "another" : "the same");
  world.collect({});
  CHECK(world.offersDiffer());
  if (rank.rank == 1)
    world.stopDiffering();
  CHECK(world.exchange("why", {}) ==
        std::vector<std::string>(rank.size, "why"));
  CHECK(world.differs() && world.aborted(rank.rank));
  CHECK(world.failure() == nullptr);
  try {
    world.beginRun("step");
    CHECK(false);
  } catch (const Error &error) {
    CHECK_CONTAINS(error.what(), "the ranks were not alike");
  }
}

/// A process that has all ranks has nobody to ask.
void oneProcess() {
  Ranks(3, 4096).runThreads([](RankContext &rank) {
    CHECK(rank.world->exchange("alone", {}) ==
          std::vector<std::string>{"alone"});
  });
}

/// What ends a wait for a host that does not come, in a process of its own.
void absence(double timeout, const std::function<void(RankContext &)> &leave,
             const std::string &message) {
  WorldOptions options;
  options.timeoutSeconds = timeout;
  Ranks(3, 4096, options).runProcesses([&](RankContext &rank) {
    rank.world->exchange("here", {});
    if (rank.rank == 1)
      leave(rank);
    try {
      rank.world->exchange("still here", {});
      CHECK(false);
    } catch (const RankLost &error) {
      CHECK_CONTAINS(error.what(), message);
    }
    _exit(0);
  });
}

/// Each word of what is looked at shows, and so do length and order.
void fingerprints() {
  std::mt19937_64 random(5);
  for (uint64_t bytes : {0, 1, 7, 8, 63, 64, 65, 1000, 4096}) {
    std::string text(bytes, 0);
    for (char &c : text)
      c = char(random());
    uint64_t hash = fingerprint(text.data(), bytes, ~0ull, 1);
    CHECK(hash == fingerprint(text.data(), bytes, bytes, 1));
    CHECK(hash != fingerprint(text.data(), bytes, ~0ull, 2));
    CHECK(hash != fingerprint((text + '\0').data(), bytes + 1, ~0ull, 1));
    for (uint64_t i = 0; i < bytes; ++i) {
      std::string other = text;
      other[i] ^= char(1 << (i % 8));
      CHECK(hash != fingerprint(other.data(), bytes, ~0ull, 1));
    }
  }
  // A sample: the ends always, and of any thousand bytes in a row some.
  constexpr uint64_t size = 1 << 20, limit = 1 << 16;
  std::string text(size, 'x');
  uint64_t hash = fingerprint(text.data(), size, limit, 0);
  for (uint64_t first = 0; first <= size - 1024; first += 997) {
    std::string other = text;
    std::fill(other.begin() + first, other.begin() + first + 1024, 'y');
    CHECK(hash != fingerprint(other.data(), size, limit, 0));
  }
  for (uint64_t i : {uint64_t(0), size - 1}) {
    std::string other = text;
    other[i] = 'y';
    CHECK(hash != fingerprint(other.data(), size, limit, 0));
  }
}

} // namespace

int main() {
  fingerprints();
  oneProcess();
#ifndef __SANITIZE_THREAD__
  for (uint32_t size : {2, 3, 4})
    for (const Ranks::Body &body : {everybodyHears, offers})
      Ranks(size, 4096).runProcesses(body);
  absence(
      60,
      [](RankContext &rank) {
        rank.world->close();
        _exit(0);
      },
      "rank 1 ended after 0 runs, before run 1");
  absence(
      0.3,
      [](RankContext &) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        _exit(0);
      },
      "rank 1 made no progress for 0.3 s");
#endif
}
