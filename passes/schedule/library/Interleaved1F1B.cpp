// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Interleaved1F1B.cpp - 1F1B over several stages per rank ------------===//
//
// Narayanan et al., Efficient Large-Scale Language Model Training on GPU
// Clusters, 2021, arXiv:2104.04473. The paper asks for a multiple of the ranks
// as microbatches and torch.distributed.pipelining for equal rounds; here the
// rounds of other counts differ by one.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Interleaved.h"

using namespace piper::schedule;

Table piper::schedule::interleaved1F1B(const Sizes &sizes) {
  return alternate(sizes, {/*forwardsPerHop=*/2, /*splitsBackward=*/false,
                           /*delayPerHop=*/0});
}
