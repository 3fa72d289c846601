// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Placement.cpp - offsets for buffers --------------------------------===//

#include "passes/plan/Placement.h"
#include "passes/plan/Sizes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

using namespace piper;

namespace {
class Placer {
public:
  Placer(llvm::ArrayRef<Extent> extents,
         llvm::function_ref<bool(unsigned, unsigned)> mayFollow)
      : extents(extents), mayFollow(mayFollow) {}

  Placement place(llvm::ArrayRef<unsigned> order) {
    result.offsets.assign(extents.size(), 0);
    for (unsigned buffer : order) {
      int64_t offset = findGap(buffer);
      result.offsets[buffer] = offset;
      result.peak = std::max(result.peak, offset + getBytes(buffer));
      auto at = llvm::upper_bound(placed, offset, [&](int64_t o, unsigned b) {
        return o < result.offsets[b];
      });
      placed.insert(at, buffer);
    }
    return std::move(result);
  }

private:
  int64_t getBytes(unsigned buffer) const {
    return alignBytes(extents[buffer].bytes);
  }

  bool mayShare(unsigned a, unsigned b) const {
    if (extents[a].last < extents[b].first)
      return mayFollow(a, b);
    if (extents[b].last < extents[a].first)
      return mayFollow(b, a);
    return false;
  }

  /// The lowest offset at which no conflicting buffer is in the way.
  int64_t findGap(unsigned buffer) const {
    int64_t offset = 0;
    for (unsigned other : placed) { // by ascending offset
      int64_t begin = result.offsets[other], end = begin + getBytes(other);
      if (end <= offset)
        continue;
      if (mayShare(buffer, other))
        continue;
      if (begin >= offset + getBytes(buffer))
        break;
      offset = end;
    }
    return offset;
  }

  llvm::ArrayRef<Extent> extents;
  llvm::function_ref<bool(unsigned, unsigned)> mayFollow;
  llvm::SmallVector<unsigned> placed;
  Placement result;
};
} // namespace

Placement
piper::placeBuffers(llvm::ArrayRef<Extent> extents,
                    llvm::function_ref<bool(unsigned, unsigned)> mayFollow) {
  auto byTime = llvm::to_vector(llvm::seq<unsigned>(0, extents.size()));
  llvm::stable_sort(byTime, [&](unsigned a, unsigned b) {
    return extents[a].first < extents[b].first;
  });
  auto bySize = byTime;
  llvm::stable_sort(bySize, [&](unsigned a, unsigned b) {
    return extents[a].bytes > extents[b].bytes;
  });
  Placement first = Placer(extents, mayFollow).place(byTime);
  Placement second = Placer(extents, mayFollow).place(bySize);
  return second.peak < first.peak ? second : first;
}
