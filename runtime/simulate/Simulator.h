// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a plan does when, without running it: the clocks of a DelayDevice, for
// all ranks, as fast as the machine can count.
#ifndef PIPER_RUNTIME_SIMULATE_SIMULATOR_H
#define PIPER_RUNTIME_SIMULATE_SIMULATOR_H

#include "runtime/delay/DelayDevice.h"

namespace piper::runtime {

/// One action of one stream of one rank, in nanoseconds from the entry's
/// beginning.
struct SimulatedAction {
  uint32_t rank, stream;
  /// Its place in the stream.
  uint64_t index;
  const plan::Action *action;
  uint64_t start, end;
  /// Of the time between them, what passed before another rank or stream was
  /// ready.
  uint64_t waited;
  /// That pass a link, of a receive or a collective; of a copy, zero fill or
  /// accumulation those of its memory.
  uint64_t bytes;
  /// The action that this one had to come after last, or -1: what was done
  /// before it in its stream, or what it waited for.
  int64_t cause;
};

struct Simulation {
  /// From the beginning until every message is received, by the last rank.
  uint64_t duration = 0;
  /// By rank and stream; those that the flags skip are left out.
  std::vector<SimulatedAction> actions;
  /// Positions in `actions`: a chain without a gap from the beginning to the
  /// action that ends last.
  std::vector<uint64_t> criticalPath;
};

/// Runs an entry on all ranks of the plan's world.
///
/// Throws Error for an entry that no class has, and for a plan whose ranks wait
/// for each other for ever: it names them and what they wait for.
Simulation simulate(const plan::Plan &plan, const DelayDevice &device,
                    const std::string &entry, uint64_t flags);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_SIMULATE_SIMULATOR_H
