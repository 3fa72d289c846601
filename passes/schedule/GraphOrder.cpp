// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GraphOrder.cpp - the operations of a graph as events ---------------===//

#include "passes/schedule/GraphOrder.h"

using namespace mlir;
using namespace piper;

GraphOrder::GraphOrder(GraphOp graph) : graph(graph) {
  for (Operation &op : graph.getBody().front().without_terminator()) {
    numbers[&op] = events.addEvent();
    ops.push_back(&op);
  }
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        addEdge(producer, op);
}

void GraphOrder::apply(ArrayRef<uint32_t> order) {
  Operation *end = graph.getBody().front().getTerminator();
  for (uint32_t event : order)
    ops[event]->moveBefore(end);
}
