// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Placement.h - offsets for buffers ------------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_PLACEMENT_H
#define PIPER_PASSES_PLAN_PLACEMENT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace piper {

/// A buffer as placement sees it: its size, and the first and last of the
/// entry's actions that use it.
struct Extent {
  int64_t bytes;
  int64_t first, last;
};

struct Placement {
  llvm::SmallVector<int64_t> offsets;
  int64_t peak = 0;
};

/// Gives buffers offsets such that those that share memory satisfy
/// `mayFollow(before, after)`, which is asked only where `before` ends before
/// `after` begins. Tries the order of time and that of sizes, each with the
/// lowest offset that fits, and returns the smaller result.
Placement placeBuffers(llvm::ArrayRef<Extent> extents,
                       llvm::function_ref<bool(unsigned, unsigned)> mayFollow);

} // namespace piper

#endif // PIPER_PASSES_PLAN_PLACEMENT_H
