// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ZeroBubbleV.cpp - no bubble, at the memory of 1F1B -----------------===//
//
// Two stages per rank in a V, so that the first rank also computes the loss. Qi
// et al., Zero Bubble Pipeline Parallelism, 2023, arXiv:2401.10241, section 6,
// in the order of torch.distributed.pipelining. Fewer microbatches than fill
// the pipeline, 2p-1, give its schedule for 2p-1 without those that are not
// there.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Schedules.h"
#include <algorithm>

using namespace piper::schedule;

namespace {
class Rank {
public:
  Rank(const Sizes &sizes, int64_t rank)
      : sizes(sizes), rank(rank),
        microbatches(std::max(2 * sizes.ranks - 1, sizes.microbatches)),
        stages{rank, 2 * sizes.ranks - 1 - rank} {}

  Row build();

private:
  void add(Kind kind, int chunk);
  void addBackward(int chunk) {
    add(Kind::I, chunk);
    add(Kind::W, chunk);
  }
  int64_t count(Kind kind, int chunk) const {
    return counts[static_cast<size_t>(kind)][chunk];
  }
  void warmUp();
  void alternate();
  void coolDown();

  const Sizes &sizes;
  int64_t rank, microbatches, stages[2];
  int64_t counts[4][2] = {};
  Row row;
};
} // namespace

void Rank::add(Kind kind, int chunk) {
  int64_t microbatch = counts[static_cast<size_t>(kind)][chunk]++;
  if (microbatch < sizes.microbatches)
    row.push_back({{stages[chunk], kind, microbatch}});
}

void Rank::warmUp() {
  for (int64_t i = 0; i < 2 * (sizes.ranks - rank) - 1; ++i)
    add(Kind::F, 0);
  for (int64_t i = 0; i < rank; ++i) {
    add(Kind::F, 1);
    add(Kind::F, 0);
  }
  for (int64_t i = 0; i < sizes.ranks - rank; ++i) {
    add(Kind::F, 1);
    addBackward(1);
  }
}

void Rank::alternate() {
  while (count(Kind::F, 1) < count(Kind::F, 0) ||
         count(Kind::F, 0) < microbatches) {
    if (count(Kind::F, 0) < microbatches)
      add(Kind::F, 0);
    addBackward(0);
    add(Kind::F, 1);
    addBackward(1);
  }
}

void Rank::coolDown() {
  for (int64_t i = 0; i < rank; ++i) {
    add(Kind::I, 0);
    add(Kind::I, 1);
  }
  for (int64_t i = 0; i < sizes.ranks - rank; ++i)
    addBackward(0);
  for (int chunk : {1, 0})
    while (count(Kind::W, chunk) < count(Kind::I, chunk))
      add(Kind::W, chunk);
}

Row Rank::build() {
  warmUp();
  alternate();
  coolDown();
  return std::move(row);
}

Table piper::schedule::zeroBubbleV(const Sizes &sizes) {
  Table table;
  for (int64_t rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(Rank(sizes, rank).build());
  return table;
}
