// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Clocks.cpp - what a stream knows to be done ------------------------===//

#include "passes/plan/Clocks.h"

using namespace mlir;
using namespace piper;

Clocks::Clocks(EntryOp entry) {
  auto addLine = [&](Attribute name) {
    if (lines.try_emplace(name, names.size()).second)
      names.push_back(name);
  };
  auto plan = entry->getParentOfType<PlanOp>();
  for (auto stream : plan.getBody().front().getOps<PlanStreamOp>())
    addLine(stream.getNameAttr());
  numStreams = names.size();
  for (auto send : entry.getBody().front().getOps<PlanSendOp>())
    addLine(ArrayAttr::get(entry.getContext(), send.getCommunicatorAttr()));
  for (unsigned line = numStreams; line < names.size(); ++line)
    names[line] = cast<ArrayAttr>(names[line])[0];
  clocks.assign(numStreams, Clock(names.size(), 0));
}

void Clocks::wait(FlatSymbolRefAttr stream, int64_t event) {
  auto found = events.find(event);
  if (found == events.end())
    return;
  Clock &clock = clocks[getLine(stream)];
  for (auto [own, other] : llvm::zip(clock, found->second))
    own = std::max(own, other);
}

bool Clocks::isKnown(int64_t event, FlatSymbolRefAttr stream) const {
  auto found = events.find(event);
  if (found == events.end())
    return false;
  return llvm::all_of(
      llvm::zip(getClock(stream), found->second),
      [](auto pair) { return std::get<0>(pair) >= std::get<1>(pair); });
}

void Clocks::release(FlatSymbolRefAttr stream, Completion message) {
  int64_t &known = clocks[getLine(stream)][message.line];
  known = std::max(known, message.time);
}

Completion Clocks::getNext(ActionOpInterface action) const {
  if (auto send = dyn_cast<PlanSendOp>(*action)) {
    FlatSymbolRefAttr channel = send.getCommunicatorAttr();
    return {getChannelLine(channel), messages.lookup(channel) + 1};
  }
  return {getLine(action.getStreamAttr()), time + 1};
}

Completion Clocks::advance(ActionOpInterface action) {
  FlatSymbolRefAttr stream = action.getStreamAttr();
  if (auto wait = dyn_cast<WaitOp>(*action)) {
    this->wait(stream, wait.getEvent());
    return {};
  }
  if (auto record = dyn_cast<RecordOp>(*action)) {
    setEvent(record.getEvent(), getClock(stream));
    return {};
  }
  if (auto release = dyn_cast<ReleaseOp>(*action)) {
    this->release(stream, getReleased(release));
    return {};
  }
  Completion done = getNext(action);
  unsigned line = getLine(stream);
  clocks[line][line] = ++time;
  if (auto send = dyn_cast<PlanSendOp>(*action))
    ++messages[send.getCommunicatorAttr()];
  return done;
}
