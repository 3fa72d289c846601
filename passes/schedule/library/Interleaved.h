// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Interleaved.h - forwards and backwards in turn -----------*- C++ -*-===//
//
// What interleaved 1F1B and the zero-bubble schedules of Qi et al. have in
// common: some forwards ahead, then one forward and one backward in turn, then
// the rest of the backwards. They differ in how many forwards, and in when the
// gradients of the weights follow.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_INTERLEAVED_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_INTERLEAVED_H

#include "passes/schedule/library/Schedules.h"

namespace piper::schedule {

struct Alternation {
  /// Forwards that a rank runs ahead, more than the next rank does.
  int64_t forwardsPerHop;
  /// Whether the backwards are divided into I and W.
  bool splitsBackward;
  /// By how many backwards more than rank r - 1 does rank r delay its W.
  int64_t delayPerHop;
};

/// The microbatches go in rounds of at least as many as there are ranks, and as
/// equal as possible, through all stages of a rank; a round's last microbatches
/// give the first of the next one time to come round.
Table alternate(const Sizes &sizes, const Alternation &alternation);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_INTERLEAVED_H
