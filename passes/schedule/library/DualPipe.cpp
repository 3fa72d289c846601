// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DualPipe.cpp - two directions at once ------------------------------===//
//
// Half of the microbatches enter at each end: every rank holds two stages. See
// EightSteps.h. The report asks for an even number of microbatches, at least
// twice the ranks; other counts give the schedule for the next such number
// without the microbatches that are not there.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/EightSteps.h"
#include <algorithm>

using namespace piper::schedule;

Table piper::schedule::dualPipe(const Sizes &sizes) {
  int64_t first = (sizes.microbatches + 1) / 2;
  int64_t count = std::max(first, sizes.ranks);
  Table table;
  for (int64_t rank = 0; rank < sizes.ranks; ++rank) {
    int64_t mirror = sizes.ranks - 1 - rank;
    Lane down{rank, 0, first};
    Lane up{mirror, first, sizes.microbatches - first};
    // Whichever direction begins nearer to the rank is its lane 0.
    if (rank > mirror)
      std::swap(down, up);
    table.push_back(buildEightSteps(sizes.ranks / 2, std::min(rank, mirror),
                                    count, down, up));
  }
  return table;
}
