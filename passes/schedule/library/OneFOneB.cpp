// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- OneFOneB.cpp - one forward, one backward ---------------------------===//
//
// A stage runs ahead by as many forwards as there are stages from it to the
// last, then alternates. Narayanan et al., PipeDream-Flush, 2021,
// arXiv:2006.09503.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Schedules.h"
#include <algorithm>

using namespace piper::schedule;

Table piper::schedule::oneFOneB(const Sizes &sizes) {
  Table table(sizes.ranks);
  for (int64_t stage = 0; stage < sizes.stages; ++stage) {
    Row &row = table[stage];
    // With fewer microbatches than stages the early stages never leave warmup.
    int64_t warmup = std::min(sizes.microbatches, sizes.stages - stage);
    int64_t forward = 0;
    while (forward < warmup)
      row.push_back({{stage, Kind::F, forward++}});
    for (int64_t backward = 0; backward < sizes.microbatches; ++backward) {
      row.push_back({{stage, Kind::B, backward}});
      if (forward < sizes.microbatches)
        row.push_back({{stage, Kind::F, forward++}});
    }
  }
  return table;
}
