// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DualPipeV.cpp - DualPipe cut in half -------------------------------===//
//
// The two directions become the two halves of one V, so that no stage needs two
// copies. See EightSteps.h. Fewer microbatches than stages give the schedule
// for as many as stages, without those that are not there.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/EightSteps.h"
#include <algorithm>

using namespace piper::schedule;

Table piper::schedule::dualPipeV(const Sizes &sizes) {
  int64_t count = std::max(sizes.microbatches, sizes.stages);
  Table table;
  for (int64_t rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(
        buildEightSteps(sizes.ranks, rank, count, {rank, 0, sizes.microbatches},
                        {sizes.stages - 1 - rank, 0, sizes.microbatches}));
  return table;
}
