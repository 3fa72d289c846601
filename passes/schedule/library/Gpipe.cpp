// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Gpipe.cpp - all forwards, then all backwards -----------------------===//
//
// Huang et al., GPipe, 2019, arXiv:1811.06965.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Schedules.h"

using namespace piper::schedule;

Table piper::schedule::gpipe(const Sizes &sizes) {
  Table table(sizes.ranks);
  for (int64_t stage = 0; stage < sizes.stages; ++stage)
    for (Kind kind : {Kind::F, Kind::B})
      for (int64_t microbatch = 0; microbatch < sizes.microbatches;
           ++microbatch)
        table[stage].push_back({{stage, kind, microbatch}});
  return table;
}
