// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ZeroBubbleH2.cpp - no bubble, at twice the memory ------------------===//
//
// As ZB-H1, with as many forwards ahead as fill the time until the first
// gradient comes back, 2(p-r)-1 on rank r, and W put off by 2r microbatches.
// Bubble (p-1)(F+I-2W) where W takes no longer than F and I: none where all
// three take the same time. Qi et al., Zero Bubble Pipeline Parallelism, 2023,
// arXiv:2401.10241, section 2.3.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Interleaved.h"

using namespace piper::schedule;

Table piper::schedule::zeroBubbleH2(const Sizes &sizes) {
  return alternate(sizes, {/*forwardsPerHop=*/2, /*splitsBackward=*/true,
                           /*delayPerHop=*/2});
}
