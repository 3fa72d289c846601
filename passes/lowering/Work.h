// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Work.h - how much a function computes --------------------*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_WORK_H
#define PIPER_PASSES_LOWERING_WORK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>

namespace piper {

/// In iterations of loops over elements, of which a matrix product does several
/// at the price of one. Only ratios mean anything: of two functions, how much
/// longer one takes. Nothing where the function has no body.
std::optional<double> estimateWork(mlir::func::FuncOp function);

} // namespace piper

#endif // PIPER_PASSES_LOWERING_WORK_H
