// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DeadlockProof.h - happens-before over all ranks ----------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_DEADLOCKPROOF_H
#define PIPER_PASSES_SCHEDULE_DEADLOCKPROOF_H

#include "dialect/PiperDialect.h"

namespace piper {

/// Fails with a diagnostic where the ranks that follow the graph's order,
/// stream by stream, would wait for each other for ever: with sends that do not
/// wait for their receivers, or with sends that do. Ranks that take part in the
/// same groups do the same and stand as one.
mlir::LogicalResult proveNoDeadlock(GraphOp graph);

} // namespace piper

#endif // PIPER_PASSES_SCHEDULE_DEADLOCKPROOF_H
