// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Check.h - whether a table computes everything once -------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_CHECK_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_CHECK_H

#include "passes/schedule/library/Problem.h"

namespace piper::schedule {

/// The first thing that makes a table not a whole schedule: an action twice or
/// missing, both B and I or W, a rank that runs a backward before its forward
/// or W before I, a stage on more ranks than its copies. A table without any
/// backward is one that only computes forwards. Whether ranks wait for each
/// other says HappensBefore.h.
std::optional<Problem> checkTable(const Table &table);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_CHECK_H
