// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- BoundedIntegers.h - a trait of all operations ------------*- C++ -*-===//
//
// Programs also come from files. What later passes add up, multiply, use as the
// key of a table or count to is bounded here, once for all operations.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_DIALECT_BOUNDEDINTEGERS_H
#define PIPER_DIALECT_BOUNDEDINTEGERS_H

#include "mlir/IR/OpDefinition.h"

namespace piper {

/// No attribute holds an integer beyond 2^48 (256 TiB, if it is bytes), and no
/// list one beyond 2^48.
mlir::LogicalResult verifyBoundedIntegers(mlir::Operation *op);

template <typename ConcreteType>
class BoundedIntegers
    : public mlir::OpTrait::TraitBase<ConcreteType, BoundedIntegers> {
public:
  static mlir::LogicalResult verifyTrait(mlir::Operation *op) {
    return verifyBoundedIntegers(op);
  }
};

} // namespace piper

#endif // PIPER_DIALECT_BOUNDEDINTEGERS_H
