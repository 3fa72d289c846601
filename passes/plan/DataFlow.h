// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DataFlow.h - who wrote what an action reads --------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_DATAFLOW_H
#define PIPER_PASSES_PLAN_DATAFLOW_H

#include "passes/plan/Accesses.h"
#include <map>

namespace piper {

/// An attribute of actions: position, number of the address and byte behind it
/// of each writer of what the action reads, in the order of addresses. Of a
/// receive: the position of the send.
constexpr llvm::StringLiteral kSourcesAttr = "sources";
/// The same for what an entry leaves in state and scalars, each with its space,
/// begin and end in front.
constexpr llvm::StringLiteral kResultsAttr = "results";

/// Says on every action of the entry where its data comes from. Partition does,
/// when each value still has memory of its own.
void annotateDataFlow(EntryOp entry, const PlanTables &tables);

/// Wherever values are kept now, every action still reads what it did, so each
/// contribution is reduced as often as the graph says. Entries without
/// annotation (of a plan file) pass.
mlir::LogicalResult checkDataFlow(EntryOp entry, const PlanTables &tables);

} // namespace piper

#endif // PIPER_PASSES_PLAN_DATAFLOW_H
