// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Hazards.cpp - which actions touch the same memory ------------------===//

#include "passes/plan/Hazards.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

Hazards::Space::iterator Hazards::carve(Space &space, int64_t begin,
                                        int64_t end) {
  cutAt(space, begin);
  cutAt(space, end);
  // Fill what nobody has touched.
  int64_t at = begin;
  for (auto it = space.lower_bound(begin); at < end;) {
    if (it == space.end() || it->first > at) {
      int64_t next =
          it == space.end() ? end : std::min<int64_t>(end, it->first);
      it = space.emplace_hint(it, at, Segment{next, {}, {}});
    }
    at = it->second.end;
    ++it;
  }
  return space.lower_bound(begin);
}

SmallVector<Touch> Hazards::visit(ArrayRef<Access> accesses, Touch touch) {
  SmallVector<Touch> conflicts;
  auto addConflict = [&](const Touch &other) {
    if (!other.action || other.action == touch.action)
      return;
    for (Touch &known : conflicts)
      if (known.done.line == other.done.line) {
        if (known.done.time < other.done.time)
          known = other;
        return;
      }
    conflicts.push_back(other);
  };
  for (bool writes : {false, true})
    for (const Access &access : accesses) {
      if (access.writes != writes)
        continue;
      Space &space = spaces[{access.space, access.index}];
      auto it = carve(space, access.begin, access.end);
      for (; it != space.end() && it->first < access.end;) {
        Segment &segment = it->second;
        addConflict(segment.writer);
        if (!writes) {
          // Of each line the last reader is enough.
          auto *same = llvm::find_if(segment.readers, [&](const Touch &reader) {
            return reader.done.line == touch.done.line;
          });
          if (same != segment.readers.end())
            *same = touch;
          else
            segment.readers.push_back(touch);
          ++it;
          continue;
        }
        for (const Touch &reader : segment.readers)
          addConflict(reader);
        it = space.erase(it);
      }
      if (writes)
        space[access.begin] = Segment{access.end, touch, {}};
    }
  llvm::sort(conflicts, [](const Touch &a, const Touch &b) {
    return a.ordinal > b.ordinal;
  });
  return conflicts;
}

bool Hazards::isWritten(const Access &access) const {
  auto found = spaces.find({access.space, access.index});
  if (found == spaces.end())
    return false;
  const Space &space = found->second;
  int64_t at = access.begin;
  auto it = space.upper_bound(at);
  if (it == space.begin())
    return false;
  for (--it; at < access.end; ++it) {
    if (it == space.end() || it->first > at || it->second.end <= at ||
        !it->second.writer.action)
      return false;
    at = it->second.end;
  }
  return true;
}
