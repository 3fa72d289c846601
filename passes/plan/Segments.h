// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Segments.h - what is known of each byte ------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_SEGMENTS_H
#define PIPER_PASSES_PLAN_SEGMENTS_H

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace piper {

/// Ranges that do not overlap, by their beginnings; a segment has its `end`.
template <typename SegmentT> using Segments = std::map<int64_t, SegmentT>;

/// Divides the segment that holds `at` in its middle into two that are alike.
template <typename SegmentT>
void cutAt(Segments<SegmentT> &segments, int64_t at) {
  auto it = segments.upper_bound(at);
  if (it == segments.begin())
    return;
  --it;
  if (it->first == at || it->second.end <= at)
    return;
  SegmentT right = it->second;
  it->second.end = at;
  segments.emplace_hint(std::next(it), at, std::move(right));
}

} // namespace piper

#endif // PIPER_PASSES_PLAN_SEGMENTS_H
