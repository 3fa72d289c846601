// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Hazards.h - which actions touch the same memory ----------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_HAZARDS_H
#define PIPER_PASSES_PLAN_HAZARDS_H

#include "passes/plan/Accesses.h"
#include "passes/plan/Clocks.h"
#include "passes/plan/Segments.h"
#include <map>

namespace piper {

/// An action that touched memory, and when it is done with it.
struct Touch {
  mlir::Operation *action = nullptr;
  Completion done;
  /// Its place in the entry.
  int64_t ordinal = 0;
};

/// The last writer and the readers since, of every byte that was touched.
class Hazards {
public:
  /// Notes the accesses of one action and returns the earlier actions that it
  /// conflicts with (same byte, one of the two writes); of each line only the
  /// last one, latest first.
  llvm::SmallVector<Touch> visit(llvm::ArrayRef<Access> accesses, Touch touch);

  /// Whether every byte of the access has been written before.
  bool isWritten(const Access &access) const;

private:
  struct Segment {
    int64_t end;
    Touch writer;
    llvm::SmallVector<Touch, 2> readers;
  };
  using Space = Segments<Segment>;
  using Key = std::pair<AddressSpace, int64_t>;

  /// Cuts segments so that [begin, end) is covered by whole ones; returns the
  /// first.
  static Space::iterator carve(Space &space, int64_t begin, int64_t end);

  std::map<Key, Space> spaces;
};

} // namespace piper

#endif // PIPER_PASSES_PLAN_HAZARDS_H
