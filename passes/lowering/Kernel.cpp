// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Kernel.cpp - what the lowering passes share ------------------------===//

#include "passes/lowering/Lowering.h"

#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

func::FuncOp piper::findKernel(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isDeclaration())
      return function;
  return nullptr;
}

bool piper::isViewOp(Operation *op) {
  return isa<ViewLikeOpInterface>(op) && op->getNumResults() == 1 &&
         isa<MemRefType>(op->getResult(0).getType());
}

Value piper::baseOf(Value memref) {
  while (Operation *op = memref.getDefiningOp()) {
    if (!isViewOp(op))
      break;
    memref = op->getOperand(0);
  }
  return memref;
}
