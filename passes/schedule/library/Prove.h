// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Prove.h - whether a table can run ------------------------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_PROVE_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_PROVE_H

#include "passes/schedule/library/Problem.h"

namespace piper::schedule {

/// Nothing, if the table computes everything once and no rank waits for ever,
/// neither where sends return at once nor where they wait for their receiver.
std::optional<Problem> proveTable(const Table &table);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_PROVE_H
