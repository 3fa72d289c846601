// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective as a set of independent blocks. Each block belongs to one
// member, whose cache it concerns most, but any member may execute it: whoever
// has a core works, so a group is as fast as the cores it gets.
#ifndef PIPER_RUNTIME_COMM_BLOCKS_H
#define PIPER_RUNTIME_COMM_BLOCKS_H

#include "runtime/Communicator.h"

#include <vector>

namespace piper::runtime {

class Blocks {
public:
  /// `src` and `dst` of `operation` are ignored; the members' addresses are
  /// given by `sources` and `destinations`, in the order of positions.
  Blocks(const Collective &operation, std::vector<char *> sources,
         std::vector<char *> destinations);

  uint32_t ofMember(uint32_t member) const;
  uint32_t total() const;
  void execute(uint32_t member, uint32_t block) const;

  /// Bytes that all members together write.
  static uint64_t volume(const Collective &operation, uint64_t size);

private:
  void reduce(uint64_t srcElement, uint64_t count, char *const *destinations,
              size_t numDestinations, uint64_t dstElement) const;
  void copy(char *dst, const char *src, uint64_t elements) const;
  uint64_t sliceBegin(uint32_t member) const;

  Collective operation;
  std::vector<char *> sources, destinations;
  uint64_t size;
  uint64_t width;
  uint64_t blockElements;
  /// Pieces of a member's destination, and blocks in each.
  uint64_t pieces = 1;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_BLOCKS_H
