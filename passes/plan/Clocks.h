// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Clocks.h - what a stream knows to be done ----------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_CLOCKS_H
#define PIPER_PASSES_PLAN_CLOCKS_H

#include "dialect/PiperDialect.h"
#include "llvm/ADT/DenseMap.h"

namespace piper {

/// When an action is done with its memory. A line is a stream, or a channel on
/// which messages are acknowledged one after the other: a send is done with its
/// source not when its stream goes on but when the message is acknowledged.
/// Times on a line ascend from 1.
struct Completion {
  unsigned line = 0;
  int64_t time = 0;
};

/// Vector clocks of one entry of one class. Walk the entry's actions in order
/// and call `advance` for each; at any time `isDone` says what is known to be
/// done when the next action of a stream begins.
class Clocks {
public:
  explicit Clocks(EntryOp entry);

  /// The completion that `advance` would return.
  Completion getNext(ActionOpInterface action) const;

  /// Records what a synchronisation gives its stream, or the completion of an
  /// action that does something.
  Completion advance(ActionOpInterface action);

  bool isDone(Completion completion, mlir::FlatSymbolRefAttr stream) const {
    return clocks[getLine(stream)][completion.line] >= completion.time;
  }

  bool isChannel(unsigned line) const { return line >= numStreams; }
  mlir::FlatSymbolRefAttr getName(unsigned line) const {
    return llvm::cast<mlir::FlatSymbolRefAttr>(names[line]);
  }
  unsigned getLine(mlir::Attribute name) const { return lines.lookup(name); }
  /// A channel may be called like a stream, so its line goes by another name.
  unsigned getChannelLine(mlir::FlatSymbolRefAttr channel) const {
    return getLine(mlir::ArrayAttr::get(channel.getContext(), channel));
  }
  size_t getNumLines() const { return names.size(); }

  using Clock = llvm::SmallVector<int64_t, 6>;
  const Clock &getClock(mlir::FlatSymbolRefAttr stream) const {
    return clocks[getLine(stream)];
  }
  /// What whoever waits for the event gets to know.
  void setEvent(int64_t event, Clock clock) {
    events[event] = std::move(clock);
  }
  /// Whether whoever waits for the event learns nothing new.
  bool isKnown(int64_t event, mlir::FlatSymbolRefAttr stream) const;
  /// The message that a release waits for.
  Completion getReleased(ReleaseOp release) const {
    return {getChannelLine(release.getCommunicatorAttr()),
            int64_t(release.getMessage()) + 1};
  }
  /// Effect of a wait or release that is about to be inserted.
  void wait(mlir::FlatSymbolRefAttr stream, int64_t event);
  void release(mlir::FlatSymbolRefAttr stream, Completion message);

private:
  unsigned numStreams = 0;
  int64_t time = 0;
  llvm::SmallVector<mlir::Attribute> names;
  llvm::DenseMap<mlir::Attribute, unsigned> lines;
  llvm::SmallVector<Clock> clocks;
  llvm::DenseMap<int64_t, Clock> events;
  llvm::DenseMap<mlir::Attribute, int64_t> messages;
};

} // namespace piper

#endif // PIPER_PASSES_PLAN_CLOCKS_H
