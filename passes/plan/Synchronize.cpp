// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Synchronize.cpp - order between streams ----------------------------===//

#include "passes/plan/Synchronize.h"
#include "mlir/IR/Builders.h"
#include "passes/plan/Hazards.h"

using namespace mlir;
using namespace piper;

Receivers::Receivers(ModuleOp module) {
  for (auto plan : module.getOps<PlanOp>())
    for (auto entry : plan.getBody().front().getOps<EntryOp>()) {
      llvm::DenseMap<Attribute, size_t> counts;
      for (auto recv : entry.getBody().front().getOps<PlanRecvOp>()) {
        FlatSymbolRefAttr channel = recv.getCommunicatorAttr();
        auto &known = positions[{entry.getNameAttr(), channel}];
        size_t number = counts[channel]++;
        int64_t position =
            recv.getPosition() ? int64_t(*recv.getPosition()) : INT64_MAX;
        // Several classes may receive: the last one counts.
        if (number < known.size())
          known[number] = std::max(known[number], position);
        else
          known.push_back(position);
      }
    }
}

bool Receivers::isReceivedBefore(StringAttr entry, FlatSymbolRefAttr channel,
                                 int64_t number, IntegerAttr position) const {
  auto found = positions.find({entry, channel});
  return position && found != positions.end() &&
         number < int64_t(found->second.size()) &&
         found->second[number] < position.getInt();
}

namespace {
class Synchronizer {
public:
  Synchronizer(EntryOp entry, const PlanTables &tables,
               const Receivers &receivers, int64_t &numEvents)
      : entry(entry), tables(tables), receivers(receivers),
        numEvents(numEvents), clocks(entry), builder(entry.getContext()) {}

  LogicalResult run();

private:
  LogicalResult orderAfter(const Touch &before, ActionOpInterface action);
  int64_t getEvent(Operation *action);

  EntryOp entry;
  const PlanTables &tables;
  const Receivers &receivers;
  int64_t &numEvents;
  Clocks clocks;
  Hazards hazards;
  OpBuilder builder;
  /// What is known behind each action, until it is recorded.
  llvm::DenseMap<Operation *, Clocks::Clock> behind;
  llvm::DenseMap<Operation *, int64_t> events;
  llvm::DenseMap<Attribute, Operation *> lastOnStream;
};
} // namespace

/// The event that is recorded right behind the action.
int64_t Synchronizer::getEvent(Operation *action) {
  auto [it, isNew] = events.try_emplace(action, numEvents);
  if (isNew) {
    int64_t event = numEvents++;
    clocks.setEvent(event, behind.lookup(action));
    builder.setInsertionPointAfter(action);
    RecordOp::create(builder, action->getLoc(),
                     builder.getI64IntegerAttr(event),
                     cast<ActionOpInterface>(action).getStreamAttr(),
                     StringAttr(), StringAttr(), IntegerAttr());
  }
  return it->second;
}

LogicalResult Synchronizer::orderAfter(const Touch &before,
                                       ActionOpInterface action) {
  FlatSymbolRefAttr stream = action.getStreamAttr();
  if (clocks.isDone(before.done, stream))
    return success();
  if (!clocks.isChannel(before.done.line)) {
    int64_t event = getEvent(before.action);
    clocks.wait(stream, event);
    builder.setInsertionPoint(action);
    WaitOp::create(builder, action.getLoc(), builder.getI64IntegerAttr(event),
                   stream, StringAttr(), StringAttr(), IntegerAttr());
    return success();
  }
  FlatSymbolRefAttr channel = clocks.getName(before.done.line);
  int64_t message = before.done.time - 1;
  if (!receivers.isReceivedBefore(entry.getNameAttr(), channel, message,
                                  action.getPositionAttr())) {
    InFlightDiagnostic error =
        action->emitOpError("overwrites a message that is only received later");
    error.attachNote(before.action->getLoc()) << "sent here";
    return error;
  }
  clocks.release(stream, before.done);
  builder.setInsertionPoint(action);
  ReleaseOp::create(builder, action.getLoc(),
                    builder.getI64IntegerAttr(message), channel, stream,
                    StringAttr(), StringAttr(), IntegerAttr());
  return success();
}

LogicalResult Synchronizer::run() {
  int64_t ordinal = 0;
  for (Operation &op : llvm::make_early_inc_range(entry.getBody().front())) {
    auto action = dyn_cast<ActionOpInterface>(op);
    if (!action)
      continue;
    FlatSymbolRefAttr stream = action.getStreamAttr();
    if (isa<RecordOp, WaitOp, ReleaseOp>(op)) {
      clocks.advance(action);
      // A record that is there already serves for the action before it.
      auto record = dyn_cast<RecordOp>(op);
      if (Operation *last = record ? lastOnStream.lookup(stream) : nullptr)
        events.try_emplace(last, record.getEvent());
      continue;
    }
    Touch touch{&op, clocks.getNext(action), ordinal++};
    for (const Touch &before : hazards.visit(tables.getAccesses(action), touch))
      if (failed(orderAfter(before, action)))
        return failure();
    clocks.advance(action);
    behind[&op] = clocks.getClock(stream);
    lastOnStream[stream] = &op;
  }
  return success();
}

LogicalResult piper::synchronize(EntryOp entry, const PlanTables &tables,
                                 const Receivers &receivers,
                                 int64_t &numEvents) {
  return Synchronizer(entry, tables, receivers, numEvents).run();
}

LogicalResult piper::synchronize(ModuleOp module) {
  PlanTables tables(module);
  Receivers receivers(module);
  for (auto plan : module.getOps<PlanOp>()) {
    int64_t numEvents = 0;
    for (auto entry : plan.getBody().front().getOps<EntryOp>()) {
      // Events are numbered per entry.
      int64_t used = 0;
      for (auto record : entry.getBody().front().getOps<RecordOp>())
        used = std::max<int64_t>(used, record.getEvent() + 1);
      if (failed(synchronize(entry, tables, receivers, used)))
        return failure();
      numEvents = std::max(numEvents, used);
    }
    plan.setEvents(numEvents);
  }
  return success();
}
