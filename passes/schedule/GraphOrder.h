// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GraphOrder.h - the operations of a graph as events -------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_GRAPHORDER_H
#define PIPER_PASSES_SCHEDULE_GRAPHORDER_H

#include "dialect/PiperDialect.h"
#include "passes/schedule/library/EventGraph.h"
#include "llvm/ADT/DenseMap.h"

namespace piper {

/// An event per operation of a graph, in block order, the terminator left out,
/// with an edge per use of a value or token.
class GraphOrder {
public:
  explicit GraphOrder(GraphOp graph);

  void addEdge(mlir::Operation *before, mlir::Operation *after) {
    events.addEdge(numbers.lookup(before), numbers.lookup(after));
  }

  const schedule::EventGraph &getEvents() const { return events; }
  mlir::Operation *getOp(uint32_t event) const { return ops[event]; }
  uint32_t getEvent(mlir::Operation *op) const { return numbers.lookup(op); }

  /// Puts the block in this order, which holds every event once.
  void apply(llvm::ArrayRef<uint32_t> order);

private:
  GraphOp graph;
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::DenseMap<mlir::Operation *, uint32_t> numbers;
  schedule::EventGraph events;
};

} // namespace piper

#endif // PIPER_PASSES_SCHEDULE_GRAPHORDER_H
