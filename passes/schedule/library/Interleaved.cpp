// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Interleaved.cpp - forwards and backwards in turn -------------------===//

#include "passes/schedule/library/Interleaved.h"
#include <algorithm>

using namespace piper::schedule;

namespace {
struct Pair {
  int64_t stage, microbatch;
};
} // namespace

/// The microbatches of each round; where they can't be equal, the first rounds
/// have one more.
static std::vector<int64_t> divideIntoRounds(const Sizes &sizes) {
  int64_t count = std::max<int64_t>(1, sizes.microbatches / sizes.ranks);
  std::vector<int64_t> rounds(count, sizes.microbatches / count);
  for (int64_t round = 0; round < sizes.microbatches % count; ++round)
    ++rounds[round];
  return rounds;
}

/// The order in which a rank's stages take their microbatches.
static std::vector<Pair> orderPairs(const Sizes &sizes, int64_t rank,
                                    bool lastStageFirst) {
  std::vector<Pair> pairs;
  int64_t perRank = sizes.stages / sizes.ranks;
  int64_t first = 0;
  for (int64_t size : divideIntoRounds(sizes)) {
    for (int64_t i = 0; i < perRank; ++i) {
      int64_t local = lastStageFirst ? perRank - 1 - i : i;
      for (int64_t microbatch = first; microbatch < first + size; ++microbatch)
        pairs.push_back({local * sizes.ranks + rank, microbatch});
    }
    first += size;
  }
  return pairs;
}

static Row alternateRank(const Sizes &sizes, const Alternation &alternation,
                         int64_t rank) {
  std::vector<Pair> forwards = orderPairs(sizes, rank, false);
  std::vector<Pair> backwards = orderPairs(sizes, rank, true);
  int64_t total = forwards.size();
  int64_t perRank = sizes.stages / sizes.ranks;
  int64_t warmup = (perRank - 1) * divideIntoRounds(sizes).front() +
                   alternation.forwardsPerHop * (sizes.ranks - 1 - rank);
  warmup = std::min(warmup, total);
  int64_t delay = alternation.delayPerHop * rank;

  Row row;
  auto add = [&](const Pair &pair, Kind kind) {
    row.push_back({{pair.stage, kind, pair.microbatch}});
  };
  int64_t forward = 0, weight = 0;
  while (forward < warmup)
    add(forwards[forward++], Kind::F);
  for (int64_t backward = 0; backward < total; ++backward) {
    if (forward < total)
      add(forwards[forward++], Kind::F);
    add(backwards[backward], alternation.splitsBackward ? Kind::I : Kind::B);
    if (alternation.splitsBackward && backward >= delay)
      add(backwards[weight++], Kind::W);
  }
  while (alternation.splitsBackward && weight < total)
    add(backwards[weight++], Kind::W);
  return row;
}

Table piper::schedule::alternate(const Sizes &sizes,
                                 const Alternation &alternation) {
  Table table;
  for (int64_t rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(alternateRank(sizes, alternation, rank));
  return table;
}
