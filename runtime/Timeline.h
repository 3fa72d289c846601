// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_TIMELINE_H
#define PIPER_RUNTIME_TIMELINE_H

#include <algorithm>
#include <cstdint>

namespace piper::runtime {

/// What a stream has reached on a device that states how long everything takes,
/// in CLOCK_MONOTONIC nanoseconds. Its thread follows: one that wakes up late
/// does the next action earlier after the last, so lateness does not add up.
/// Who waits for a stream learns the time of the timeline, not of the thread.
class Timeline {
public:
  uint64_t now() const { return time; }
  /// Work of stated duration.
  void advance(uint64_t nanoseconds) { time += nanoseconds; }
  /// What it waits for happens at `when`.
  void reach(uint64_t when) { time = std::max(time, when); }

private:
  uint64_t time = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_TIMELINE_H
