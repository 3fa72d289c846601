// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Durations.h - how long the nodes of a graph take ---------*- C++ -*-===//
//
// Estimates for the list scheduler, in no unit: only their ratios count. An
// order that fits wrong durations makes a stream wait for a late message while
// an early one lies behind it.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_DURATIONS_H
#define PIPER_PASSES_SCHEDULE_DURATIONS_H

#include "dialect/PiperDialect.h"
#include "llvm/ADT/DenseMap.h"

namespace piper {

class Durations {
public:
  explicit Durations(GraphOp graph);
  int64_t of(mlir::Operation *op) const;

private:
  /// Of compute nodes, by chunk.
  llvm::DenseMap<mlir::Attribute, int64_t> byChunk;
};

} // namespace piper

#endif // PIPER_PASSES_SCHEDULE_DURATIONS_H
