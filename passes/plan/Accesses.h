// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Accesses.h - what memory an action touches ---------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_ACCESSES_H
#define PIPER_PASSES_PLAN_ACCESSES_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace piper {

/// Bytes [begin, end) of a space (of a buffer, before memory planning).
struct Access {
  AddressSpace space;
  int64_t index;
  int64_t begin, end;
  bool writes;
  /// Number of the address in the action.
  unsigned operand;
};

/// What actions refer to by name. Looking a symbol up in a module is linear, so
/// passes do it once.
class PlanTables {
public:
  explicit PlanTables(mlir::ModuleOp module);

  KernelOp lookupKernel(mlir::StringAttr name) const {
    return kernels.lookup(name);
  }
  CommunicatorOp lookupCommunicator(mlir::FlatSymbolRefAttr name) const {
    return communicators.lookup(name.getAttr());
  }

  /// The memory that the action reads or writes on any rank of a class. Inputs
  /// (the host's, read only) and workspaces (of one stream) are left out. An
  /// action that updates in place has two accesses.
  llvm::SmallVector<Access> getAccesses(ActionOpInterface action) const;

private:
  llvm::DenseMap<mlir::StringAttr, KernelOp> kernels;
  llvm::DenseMap<mlir::StringAttr, CommunicatorOp> communicators;
};

} // namespace piper

#endif // PIPER_PASSES_PLAN_ACCESSES_H
