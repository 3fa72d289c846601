// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Conversions.h - tensors in another floating-point type ---*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_CONVERSIONS_H
#define PIPER_PASSES_LOWERING_CONVERSIONS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace piper {

/// The tensor of which `op` converts each element in its place by a
/// `Conversion` (arith.extf or arith.truncf) and does nothing else, or null.
template <typename Conversion>
mlir::Value getConversionSource(mlir::linalg::GenericOp op) {
  if (!op || op.getNumDpsInputs() != 1 || op->getNumResults() != 1 ||
      op.getNumParallelLoops() != op.getNumLoops() ||
      llvm::any_of(op.getIndexingMapsArray(),
                   [](mlir::AffineMap map) { return !map.isIdentity(); }))
    return {};
  mlir::Block *body = op.getBody();
  auto conversion = mlir::dyn_cast<Conversion>(body->front());
  auto yield = mlir::cast<mlir::linalg::YieldOp>(body->getTerminator());
  bool isAlone = conversion && conversion->getNextNode() == yield &&
                 conversion.getIn() == body->getArgument(0) &&
                 yield.getOperand(0) == conversion.getOut();
  return isAlone ? op.getInputs()[0] : mlir::Value();
}

template <typename Conversion>
mlir::Value getConversionSource(mlir::Value value) {
  return getConversionSource<Conversion>(
      value.getDefiningOp<mlir::linalg::GenericOp>());
}

} // namespace piper

#endif // PIPER_PASSES_LOWERING_CONVERSIONS_H
