// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CheckMemory.cpp - no race, no overlap ------------------------------===//

#include "passes/plan/Checks.h"
#include "passes/plan/DataFlow.h"
#include "passes/plan/Hazards.h"

using namespace mlir;
using namespace piper;

static std::string getName(ActionOpInterface action) {
  if (action.getLabelAttr())
    return ("\"" + action.getLabelAttr().getValue() + "\"").str();
  return action->getName().getStringRef().str();
}

/// A kernel reads and writes through its pointers in any order, so what it
/// writes overlaps nothing else of its own.
static LogicalResult checkOperands(LaunchOp launch,
                                   SmallVector<Access> accesses) {
  llvm::sort(accesses, [](const Access &a, const Access &b) {
    return std::tie(a.space, a.begin, a.end) <
           std::tie(b.space, b.begin, b.end);
  });
  // Of what begins before, the ends that reach furthest.
  const Access *read = nullptr, *written = nullptr;
  for (const Access &access : accesses) {
    for (const Access *other : {written, access.writes ? read : nullptr})
      if (other && other->space == access.space && other->end > access.begin &&
          other->operand != access.operand)
        return launch.emitOpError("expected pointer ")
               << std::max(other->operand, access.operand)
               << " to have memory of its own, got an overlap with pointer "
               << std::min(other->operand, access.operand);
    const Access *&last = access.writes ? written : read;
    if (!last || last->space != access.space || last->end < access.end)
      last = &access;
  }
  return success();
}

/// Every two accesses that conflict are ordered, over streams by events or by
/// acknowledged messages, or by what other ranks answered.
static LogicalResult checkRaces(EntryOp entry, const PlanTables &tables,
                                RankOrder &order) {
  Clocks clocks(entry);
  Hazards hazards;
  int64_t ordinal = 0;
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
    if (isa<RecordOp, WaitOp, ReleaseOp>(*action)) {
      clocks.advance(action);
      continue;
    }
    SmallVector<Access> accesses = tables.getAccesses(action);
    if (auto launch = dyn_cast<LaunchOp>(*action))
      if (failed(checkOperands(launch, accesses)))
        return failure();
    for (Access access : accesses) {
      // A bundle travels with the gaps between its members.
      if (isa<PlanSendOp>(*action))
        access.end = access.begin + 1;
      if (access.space == AddressSpace::buffer)
        return action->emitOpError("expected every buffer to have a place in "
                                   "the arena, got buffer ")
               << access.index;
      if (access.space == AddressSpace::arena && !access.writes &&
          !hazards.isWritten(access))
        return action->emitOpError("reads bytes ")
               << access.begin << " to " << access.end
               << " of the arena, which nothing has written";
    }
    Touch touch{action, clocks.getNext(action), ordinal++};
    for (const Touch &before : hazards.visit(accesses, touch)) {
      auto other = cast<ActionOpInterface>(before.action);
      if (clocks.isDone(before.done, action.getStreamAttr()) ||
          order.isOrdered(other, action))
        continue;
      InFlightDiagnostic error =
          action->emitOpError("race: ")
          << getName(action) << " on " << action.getStreamAttr()
          << " may run before " << getName(other) << " on "
          << other.getStreamAttr() << " is done with the same memory";
      error.attachNote(other.getLoc()) << "the other action";
      return error;
    }
    clocks.advance(action);
  }
  return success();
}

static bool overlap(BufferOp a, BufferOp b) {
  return *a.getOffset() < *b.getOffset() + b.getBytes() &&
         *b.getOffset() < *a.getOffset() + a.getBytes();
}

/// Walks through time with the buffers that are live. Where it is known who
/// wrote what is read, a buffer may lie in a part of another that is not in
/// use.
static LogicalResult checkLifetimes(EntryOp entry, const PlanTables &tables) {
  auto buffers = llvm::to_vector(entry.getBody().front().getOps<BufferOp>());
  if (buffers.empty())
    return success(); // a plan file tells the buffers of one entry only
  for (BufferOp buffer : buffers)
    if (!buffer.getOffset())
      return buffer.emitOpError("expected a place in the arena");
  llvm::stable_sort(buffers, [](BufferOp a, BufferOp b) {
    return *a.getFirst() < *b.getFirst();
  });
  bool isFlowKnown = entry->hasAttr(kResultsAttr);
  SmallVector<BufferOp> live;
  size_t next = 0;
  int64_t ordinal = 0;
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
    llvm::erase_if(live, [&](BufferOp buffer) {
      return int64_t(*buffer.getLast()) < ordinal;
    });
    for (;
         next < buffers.size() && int64_t(*buffers[next].getFirst()) <= ordinal;
         ++next) {
      for (BufferOp other : live)
        if (!isFlowKnown && overlap(other, buffers[next])) {
          InFlightDiagnostic error =
              buffers[next].emitOpError("overlaps buffer ")
              << other.getNumber() << " while both are live";
          error.attachNote(other.getLoc()) << "the other buffer";
          return error;
        }
      live.push_back(buffers[next]);
    }
    for (const Access &access : tables.getAccesses(action))
      if (access.space == AddressSpace::arena &&
          llvm::none_of(live, [&](BufferOp buffer) {
            int64_t begin = *buffer.getOffset();
            return begin <= access.begin &&
                   access.end <= begin + int64_t(buffer.getBytes());
          }))
        return action->emitOpError("uses bytes ")
               << access.begin << " to " << access.end
               << " of the arena, where no buffer is live";
    ++ordinal;
  }
  return success();
}

LogicalResult piper::checkMemory(EntryOp entry, const PlanTables &tables,
                                 RankOrder &order) {
  if (failed(checkLifetimes(entry, tables)) ||
      failed(checkRaces(entry, tables, order)))
    return failure();
  return checkDataFlow(entry, tables);
}
