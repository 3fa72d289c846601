// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who waits for whom and where, read from the stream statuses that every rank
// publishes. All processes know the whole plan, so each can name any action.
#ifndef PIPER_RUNTIME_COMM_DIAGNOSIS_H
#define PIPER_RUNTIME_COMM_DIAGNOSIS_H

#include "runtime/comm/World.h"

namespace piper::runtime {

/// "rank 0 was waiting for rank 2 at recv 'x' (stream comm), was running …".
std::string describe(const World &world, uint32_t rank);

/// "recv 'x'": action `index` of a stream of `rank` in its current run.
std::string actionName(const World &world, uint32_t rank, uint32_t stream,
                       uint32_t index);

/// Ends a wait whose cause stands still for longer than the time limit.
class Patience {
public:
  explicit Patience(World &world) : world(world) {}
  /// `awaited` is the rank that the caller waits for, -1 = none. Follows the
  /// chain of waits from there to its end; if the rank there made no progress
  /// since the limit, posts the failure.
  void check(int32_t awaited);

private:
  World &world;
  uint32_t culprit = ~0u;
  uint64_t progress = 0;
  uint64_t since = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_DIAGNOSIS_H
