// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Work.h - how much a function computes --------------------*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_WORK_H
#define PIPER_PASSES_LOWERING_WORK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace piper {

/// What a function does: the multiply-adds of its matrix products, and the
/// iterations of its loops over elements, each of which takes longer.
struct Work {
  double multiplyAdds = 0;
  double iterations = 0;
};

/// Counts what stands there: before loops are fused they have more iterations.
/// A declaration does nothing.
Work countWork(mlir::func::FuncOp function);

} // namespace piper

#endif // PIPER_PASSES_LOWERING_WORK_H
