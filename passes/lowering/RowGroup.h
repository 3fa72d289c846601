// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RowGroup.h - linalg ops that can share a loop over rows --*- C++ -*-===//

#ifndef PIPER_PASSES_LOWERING_ROWGROUP_H
#define PIPER_PASSES_LOWERING_ROWGROUP_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace piper {

/// How one operand is addressed by the leading loops of its op.
struct RowAccess {
  /// The leading dims of the memref are the leading loops; otherwise the
  /// leading loops do not address it at all.
  bool isRow = false;
  bool writes = false;
  /// Distances between rows, and whether no row reaches into the next one.
  llvm::SmallVector<int64_t> rowStrides;
  bool disjoint = false;
};

/// Consecutive ops whose leading loops have the same extents, and of which no
/// row needs another row of what an earlier one wrote.
class RowGroup {
public:
  /// A group that begins with `op`, if its first `depth` loops can be rows.
  static std::optional<RowGroup> start(mlir::linalg::LinalgOp op, size_t depth);

  /// Takes `op` in, or returns false and stays as it was.
  bool add(mlir::linalg::LinalgOp op);

  /// The most iterations that one op does for one row.
  int64_t rowSize() const;

  /// True if no op of the group accesses the buffer under `memref`.
  bool isUntouched(mlir::Value memref) const;

  llvm::ArrayRef<int64_t> extents() const { return rows; }
  llvm::ArrayRef<mlir::Operation *> operations() const { return ops; }
  /// Accesses of the operands of operation `index`; none for scalars.
  llvm::ArrayRef<std::optional<RowAccess>> accesses(size_t index) const {
    return operandAccesses[index];
  }

  /// Allocations that only this group uses, row by row: one row suffices.
  llvm::SmallVector<mlir::memref::AllocOp> privateBuffers() const;

private:
  using Accesses = llvm::SmallVector<std::optional<RowAccess>>;

  std::optional<Accesses> analyze(mlir::linalg::LinalgOp op) const;
  std::optional<RowAccess> analyzeOperand(mlir::linalg::LinalgOp op,
                                          mlir::OpOperand &operand,
                                          mlir::AffineMap map) const;

  llvm::SmallVector<int64_t> rows;
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::SmallVector<Accesses> operandAccesses;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<RowAccess>> touched;
};

} // namespace piper

#endif // PIPER_PASSES_LOWERING_ROWGROUP_H
