// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank's memory, mapped by every process of the job:
//
//   header | stream statuses | groups | channels | SCALAR | STATE | ARENA
//
// It is an unnamed memory file: it vanishes with the last process that maps it,
// however that ends, and leaves nothing in /dev/shm.
#ifndef PIPER_RUNTIME_COMM_SEGMENT_H
#define PIPER_RUNTIME_COMM_SEGMENT_H

#include "runtime/comm/GroupState.h"
#include "runtime/comm/RankHeader.h"
#include "runtime/plan/Plan.h"

#include <string>
#include <vector>

namespace piper::runtime {

/// Offsets in the segment of one rank; all ranks compute the same from the
/// plan.
struct SegmentLayout {
  uint64_t statuses = 0;
  /// By communicator; 0 = this rank does not keep its state.
  std::vector<uint64_t> groups;
  std::vector<uint64_t> channels;
  /// Ring sizes of the channels it sends on, 0 = none.
  std::vector<uint32_t> capacities;
  uint64_t scalar = 0;
  uint64_t state = 0;
  uint64_t arena = 0;
  uint64_t total = 0;

  static SegmentLayout of(const plan::Plan &plan, uint32_t rank);
};

/// How another process finds a segment: /proc/<pid>/fd/<fd>. The start time
/// tells a process from a later one with the same number.
struct SegmentHandle {
  uint32_t rank = 0;
  int pid = 0;
  int fd = -1;
  uint64_t startTime = 0;
  uint64_t bytes = 0;

  std::string encode() const;
  static SegmentHandle decode(const std::string &text);
};

/// When the process started, from /proc/<pid>/stat; 0 if there is none.
uint64_t processStartTime(int pid);

class Segment {
public:
  /// A new zero-filled segment of this process.
  static Segment create(uint32_t rank, const SegmentLayout &layout);
  /// The segment of another process.
  static Segment open(const SegmentHandle &handle, const SegmentLayout &layout);

  Segment() = default;
  Segment(Segment &&other) noexcept { *this = std::move(other); }
  Segment &operator=(Segment &&other) noexcept;
  ~Segment();

  const SegmentLayout &layout() const { return offsets; }
  const SegmentHandle &handle() const { return file; }
  char *base() const { return memory; }
  RankHeader &header() const { return *reinterpret_cast<RankHeader *>(memory); }
  StreamStatus *statuses() const {
    return reinterpret_cast<StreamStatus *>(memory + offsets.statuses);
  }
  char *space(plan::Space space) const;

  /// Keeps the memory mapped for the rest of the process's life: threads that
  /// could not be stopped may still use it.
  void abandon() { memory = nullptr; }

private:
  SegmentLayout offsets;
  SegmentHandle file;
  char *memory = nullptr;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_SEGMENT_H
