// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ZeroBubbleH1.cpp - W fills the bubble, at the memory of 1F1B -------===//
//
// 1F1B with its backwards divided: rank r puts off W by r microbatches, so that
// every rank has as many alive as the first one, and the gradient of the input
// reaches the first rank sooner. Bubble (p-1)(F+I-W) where W takes no longer
// than F and I. Qi et al., Zero Bubble Pipeline Parallelism, 2023,
// arXiv:2401.10241, section 2.3.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Interleaved.h"

using namespace piper::schedule;

Table piper::schedule::zeroBubbleH1(const Sizes &sizes) {
  return alternate(sizes, {/*forwardsPerHop=*/1, /*splitsBackward=*/true,
                           /*delayPerHop=*/1});
}
