// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- OneFOneB.cpp - one forward, one backward ---------------------------===//

#include "passes/schedule/Schedules.h"
#include <algorithm>

using namespace piper::schedule;

Table piper::schedule::oneFOneB(const Sizes &sizes) {
  Table table(sizes.ranks);
  for (int64_t stage = 0; stage < sizes.stages; ++stage) {
    std::vector<Action> &row = table[stage];
    // With fewer microbatches than stages the early stages never leave warmup.
    int64_t warmup = std::min(sizes.microbatches, sizes.stages - stage);
    int64_t forward = 0;
    while (forward < warmup)
      row.push_back({stage, 'F', forward++});
    for (int64_t backward = 0; backward < sizes.microbatches; ++backward) {
      row.push_back({stage, 'B', backward});
      if (forward < sizes.microbatches)
        row.push_back({stage, 'F', forward++});
    }
  }
  return table;
}
