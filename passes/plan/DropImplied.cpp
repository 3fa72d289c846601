// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DropImplied.cpp - synchronisation that others imply ----------------===//

#include "passes/plan/Clocks.h"
#include "passes/plan/Synchronize.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace piper;

namespace {
class ImpliedDropper {
public:
  explicit ImpliedDropper(EntryOp entry) : entry(entry), clocks(entry) {}

  void run();

private:
  void settle(FlatSymbolRefAttr stream);

  EntryOp entry;
  Clocks clocks;
  /// Waits and releases of each stream since its last action.
  llvm::MapVector<Attribute, SmallVector<ActionOpInterface>> pending;
  llvm::DenseMap<int64_t, int64_t> recordedAt;
};
} // namespace

/// Of waits that stand together the one that was recorded last goes first: it
/// may bring what the others would.
void ImpliedDropper::settle(FlatSymbolRefAttr stream) {
  SmallVector<ActionOpInterface> group = std::move(pending[stream]);
  pending[stream].clear();
  llvm::stable_sort(group, [&](ActionOpInterface a, ActionOpInterface b) {
    auto time = [&](ActionOpInterface action) {
      auto wait = dyn_cast<WaitOp>(*action);
      return wait ? recordedAt.lookup(wait.getEvent()) : int64_t(-1);
    };
    return time(a) > time(b);
  });
  for (ActionOpInterface action : group) {
    bool implied;
    if (auto wait = dyn_cast<WaitOp>(*action))
      implied = clocks.isKnown(wait.getEvent(), stream);
    else
      implied =
          clocks.isDone(clocks.getReleased(cast<ReleaseOp>(*action)), stream);
    if (implied)
      action->erase();
    else
      clocks.advance(action);
  }
}

void ImpliedDropper::run() {
  int64_t ordinal = 0;
  for (Operation &op : llvm::make_early_inc_range(entry.getBody().front())) {
    auto action = dyn_cast<ActionOpInterface>(op);
    if (!action)
      continue;
    FlatSymbolRefAttr stream = action.getStreamAttr();
    if (isa<WaitOp, ReleaseOp>(op)) {
      pending[stream].push_back(action);
      continue;
    }
    settle(stream);
    if (auto record = dyn_cast<RecordOp>(op))
      recordedAt[record.getEvent()] = ordinal;
    clocks.advance(action);
    ++ordinal;
  }
  // What stands behind the last action of a stream orders nothing.
  for (auto &[stream, group] : pending)
    for (ActionOpInterface action : group)
      action->erase();

  llvm::DenseSet<int64_t> awaited;
  for (auto wait : entry.getBody().front().getOps<WaitOp>())
    awaited.insert(wait.getEvent());
  for (auto record :
       llvm::make_early_inc_range(entry.getBody().front().getOps<RecordOp>()))
    if (!awaited.contains(record.getEvent()))
      record.erase();
}

void piper::dropImplied(EntryOp entry) { ImpliedDropper(entry).run(); }
