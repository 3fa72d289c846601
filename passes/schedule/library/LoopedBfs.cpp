// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- LoopedBfs.cpp - a stage at a time, all microbatches ----------------===//
//
// Breadth first: a rank runs all microbatches through one of its stages before
// the next, and the backwards in the opposite order of stages and microbatches.
// Lamy-Poirier, Breadth-First Pipeline Parallelism, 2022, arXiv:2211.05953; the
// order of the microbatches in the backward is that of
// torch.distributed.pipelining.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Schedules.h"

using namespace piper::schedule;

Table piper::schedule::loopedBfs(const Sizes &sizes) {
  Table table(sizes.ranks);
  for (int64_t rank = 0; rank < sizes.ranks; ++rank) {
    Row &row = table[rank];
    for (int64_t stage = rank; stage < sizes.stages; stage += sizes.ranks)
      for (int64_t microbatch = 0; microbatch < sizes.microbatches;
           ++microbatch)
        row.push_back({{stage, Kind::F, microbatch}});
    for (size_t i = row.size(); i-- > 0;) {
      Action forward = row[i].front();
      row.push_back({{forward.stage, Kind::B, forward.microbatch}});
    }
  }
  return table;
}
