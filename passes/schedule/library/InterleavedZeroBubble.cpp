// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- InterleavedZeroBubble.cpp - ZB1P over several stages per rank ------===//
//
// ZB-H1 of Qi et al. (ZeroBubbleH1.cpp), interleaved as
// torch.distributed.pipelining does it. Rounds as in Interleaved1F1B.cpp.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Interleaved.h"

using namespace piper::schedule;

Table piper::schedule::interleavedZeroBubble(const Sizes &sizes) {
  return alternate(sizes, {/*forwardsPerHop=*/1, /*splitsBackward=*/true,
                           /*delayPerHop=*/1});
}
