// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Export.h - plan operations to and from the runtime's records -------===//

#ifndef PIPER_PASSES_PLAN_EXPORT_H
#define PIPER_PASSES_PLAN_EXPORT_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/plan/Plan.h"
#include "llvm/ADT/StringMap.h"

namespace piper {

/// The records of a planned module, validated. `workspaces` gives the bytes of
/// scratch that kernels need, by name; others keep what their operation says.
mlir::FailureOr<plan::Plan>
exportPlan(mlir::ModuleOp module,
           const llvm::StringMap<uint64_t> &workspaces = {});

/// Appends the operations of `plan` to an empty module. What records do not
/// hold is absent: positions, the access of kernels, buffers of entries other
/// than "step".
void importPlan(const plan::Plan &plan, mlir::ModuleOp module);

/// Names of the kernels that launches use, in the order of their records.
llvm::SmallVector<mlir::StringAttr> getKernelNames(mlir::ModuleOp module);

} // namespace piper

#endif // PIPER_PASSES_PLAN_EXPORT_H
