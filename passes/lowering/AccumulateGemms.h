// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- AccumulateGemms.h - sums of products ---------------------*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_ACCUMULATEGEMMS_H
#define PIPER_PASSES_LOWERING_ACCUMULATEGEMMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace piper {

/// Sums of products that nothing else reads become products that accumulate,
/// chained in program order.
void accumulateGemms(mlir::func::FuncOp function);

} // namespace piper

#endif // PIPER_PASSES_LOWERING_ACCUMULATEGEMMS_H
