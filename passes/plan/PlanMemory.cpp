// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanMemory.cpp - offsets in the arena ------------------------------===//

#include "mlir/IR/Builders.h"
#include "passes/Passes.h"
#include "passes/plan/Clocks.h"
#include "passes/plan/Placement.h"
#include "passes/plan/Sizes.h"
#include "passes/plan/Synchronize.h"
#include <map>

namespace piper {
#define GEN_PASS_DEF_PLANMEMORY
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
/// The first action of a stream that uses a buffer, and what the stream knows
/// when it begins.
struct FirstUse {
  ActionOpInterface action;
  Clocks::Clock clock;
  int64_t ordinal;
};

struct BufferUses {
  BufferOp op;
  Extent extent{0, -1, -1};
  SmallVector<FirstUse, 1> firsts;  // one per stream
  SmallVector<Completion, 2> lasts; // one per line
  /// The last use is a transfer: whoever follows at once would wait for it.
  bool endsInTransfer = false;
};

/// Plans one entry of one class.
class EntryPlanner {
public:
  EntryPlanner(EntryOp entry, const PlanTables &tables,
               const Receivers &receivers)
      : entry(entry), tables(tables), receivers(receivers), clocks(entry) {}

  /// Places the buffers and returns the end of the one that reaches furthest.
  int64_t run();
  EntryOp getEntry() const { return entry; }
  /// To be called once synchronisation is inserted.
  void writeLifetimes();

private:
  void collectUses();
  void addUse(BufferUses &uses, ActionOpInterface action, Completion done,
              int64_t ordinal);
  bool isKnownDone(const BufferUses &before, const FirstUse &after) const;
  bool mayFollow(const BufferUses &before, const BufferUses &after,
                 bool mayWait);
  bool mayWaitFor(const BufferUses &before, const FirstUse &after);
  void rewrite(const Placement &placement);

  EntryOp entry;
  const PlanTables &tables;
  const Receivers &receivers;
  Clocks clocks;
  std::vector<BufferUses> buffers;
  llvm::DenseMap<int64_t, unsigned> indices; // by number
  SmallVector<ActionOpInterface> actions;
  SmallVector<int64_t> launchesBefore, launchesUpTo; // of each action
};
} // namespace

void EntryPlanner::addUse(BufferUses &uses, ActionOpInterface action,
                          Completion done, int64_t ordinal) {
  if (uses.extent.first < 0)
    uses.extent.first = ordinal;
  uses.extent.last = ordinal;
  uses.endsInTransfer = !isa<LaunchOp, PlanAccumulateOp>(*action);
  FlatSymbolRefAttr stream = action.getStreamAttr();
  if (llvm::none_of(uses.firsts, [&](FirstUse &use) {
        return use.action.getStreamAttr() == stream;
      }))
    uses.firsts.push_back({action, clocks.getClock(stream), ordinal});
  for (Completion &last : uses.lasts)
    if (last.line == done.line) {
      last = done;
      return;
    }
  uses.lasts.push_back(done);
}

void EntryPlanner::collectUses() {
  for (auto op : entry.getBody().front().getOps<BufferOp>()) {
    indices[op.getNumber()] = buffers.size();
    BufferUses uses;
    uses.op = op;
    uses.extent.bytes = op.getBytes();
    buffers.push_back(std::move(uses));
  }
  int64_t ordinal = 0, numLaunches = 0;
  IntegerAttr node;
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
    Completion done = clocks.getNext(action);
    for (const Access &access : tables.getAccesses(action))
      if (access.space == AddressSpace::buffer)
        addUse(buffers[indices.lookup(access.index)], action, done, ordinal);
    clocks.advance(action);
    // Of two launches of one node a run makes one.
    bool launches = isa<LaunchOp>(*action);
    IntegerAttr position = launches ? action.getPositionAttr() : IntegerAttr();
    bool isRepeated = position && position == node;
    launchesBefore.push_back(numLaunches - isRepeated);
    numLaunches += launches && !isRepeated;
    launchesUpTo.push_back(numLaunches);
    if (launches)
      node = position;
    actions.push_back(action);
    ++ordinal;
  }
  llvm::erase_if(buffers, [](BufferUses &uses) {
    if (uses.extent.first >= 0)
      return false;
    uses.op.erase();
    return true;
  });
  indices.clear();
  for (auto [i, uses] : llvm::enumerate(buffers))
    indices[uses.op.getNumber()] = i;
}

bool EntryPlanner::isKnownDone(const BufferUses &before,
                               const FirstUse &after) const {
  return llvm::all_of(before.lasts, [&](Completion last) {
    return after.clock[last.line] >= last.time;
  });
}

/// A wait from `after` for the end of `before` must not deadlock, and is worth
/// it only if the device has something else to do meanwhile: a computation that
/// follows a transfer at once would stand still for the length of it.
bool EntryPlanner::mayWaitFor(const BufferUses &before, const FirstUse &after) {
  ActionOpInterface action = after.action;
  bool computes = isa<LaunchOp>(*action);
  int64_t between =
      launchesBefore[after.ordinal] - launchesUpTo[before.extent.last];
  if (before.endsInTransfer && computes && between < 1)
    return false;
  return llvm::all_of(before.lasts, [&](Completion last) {
    return after.clock[last.line] >= last.time ||
           !clocks.isChannel(last.line) ||
           receivers.isReceivedBefore(entry.getNameAttr(),
                                      clocks.getName(last.line), last.time - 1,
                                      action.getPositionAttr());
  });
}

bool EntryPlanner::mayFollow(const BufferUses &before, const BufferUses &after,
                             bool mayWait) {
  return llvm::all_of(after.firsts, [&](const FirstUse &use) {
    return isKnownDone(before, use) || (mayWait && mayWaitFor(before, use));
  });
}

void EntryPlanner::rewrite(const Placement &placement) {
  Builder builder(entry.getContext());
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
    SmallVector<AddressAttr> addresses = action.getAddresses();
    bool changed = false;
    for (AddressAttr &address : addresses) {
      if (address.getSpace() != AddressSpace::buffer)
        continue;
      auto found = indices.find(address.getIndex());
      int64_t base =
          found == indices.end() ? 0 : placement.offsets[found->second];
      address =
          AddressAttr::get(builder.getContext(), AddressSpace::arena, 0,
                           base + address.getOffset(),
                           address.getCommunicator(), address.getStride());
      changed = true;
    }
    if (changed)
      action.setAddresses(addresses);
  }
  for (auto [i, uses] : llvm::enumerate(buffers)) {
    uses.op.setOffsetAttr(builder.getI64IntegerAttr(placement.offsets[i]));
    uses.op.setFirstAttr(builder.getI64IntegerAttr(uses.extent.first));
    uses.op.setLastAttr(builder.getI64IntegerAttr(uses.extent.last));
  }
}

int64_t EntryPlanner::run() {
  collectUses();
  SmallVector<Extent> extents;
  for (BufferUses &uses : buffers)
    extents.push_back(uses.extent);
  auto place = [&](bool mayWait) {
    return placeBuffers(extents, [&](unsigned before, unsigned after) {
      return mayFollow(buffers[before], buffers[after], mayWait);
    });
  };
  // Waits cost time, so a few per cent of memory don't justify them.
  Placement free = place(/*mayWait=*/false);
  Placement tight = place(/*mayWait=*/true);
  const Placement &best = free.peak * 100 <= tight.peak * 103 ? free : tight;
  rewrite(best);
  int64_t end = 0;
  for (auto [i, extent] : llvm::enumerate(extents))
    end = std::max(end, best.offsets[i] + extent.bytes);
  return end;
}

/// Synchronisation that was inserted since has shifted the actions.
void EntryPlanner::writeLifetimes() {
  llvm::DenseMap<Operation *, int64_t> ordinals;
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>())
    ordinals.insert({action, ordinals.size()});
  for (BufferUses &uses : buffers) {
    uses.op.setFirst(ordinals.lookup(actions[uses.extent.first]));
    uses.op.setLast(ordinals.lookup(actions[uses.extent.last]));
  }
}

/// Largest number of live bytes of each kind of buffer.
static DictionaryAttr getPeaks(EntryOp entry) {
  std::map<std::string, std::map<int64_t, int64_t>> changes;
  for (auto buffer : entry.getBody().front().getOps<BufferOp>()) {
    auto &kind = changes[buffer.getKind().str()];
    kind[*buffer.getFirst()] += buffer.getBytes();
    kind[*buffer.getLast() + 1] -= buffer.getBytes();
  }
  Builder builder(entry.getContext());
  SmallVector<NamedAttribute> peaks;
  for (auto &[kind, steps] : changes) {
    int64_t live = 0, peak = 0;
    for (auto [ordinal, change] : steps)
      peak = std::max(peak, live += change);
    peaks.push_back(
        builder.getNamedAttr(kind, builder.getI64IntegerAttr(peak)));
  }
  return builder.getDictionaryAttr(peaks);
}

namespace {
struct PlanMemory : public piper::impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    PlanTables tables(module);
    Receivers receivers(module);
    std::vector<EntryPlanner> planners;
    for (auto plan : module.getOps<PlanOp>()) {
      int64_t end = 0;
      for (auto entry : plan.getBody().front().getOps<EntryOp>()) {
        planners.emplace_back(entry, tables, receivers);
        end = std::max(end, planners.back().run());
      }
      plan.setArena(alignBytes(end));
      plan.setPeak(end);
    }
    // What shares memory now needs order, as what shares data does.
    if (failed(synchronize(module)))
      return signalPassFailure();
    for (EntryPlanner &planner : planners) {
      dropImplied(planner.getEntry());
      planner.writeLifetimes();
    }
    for (auto plan : module.getOps<PlanOp>())
      for (auto entry : plan.getBody().front().getOps<EntryOp>())
        entry->setAttr("peaks", getPeaks(entry));
    module.walk([&](BufferOp) { ++numBuffers; });
    for (auto plan : module.getOps<PlanOp>())
      arenaBytes.updateMax(plan.getArena());
  }
};
} // namespace
