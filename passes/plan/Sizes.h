// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Sizes.h - bytes and rows ---------------------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_SIZES_H
#define PIPER_PASSES_PLAN_SIZES_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

namespace piper {

/// Every buffer, bundle member and bucket begins at a multiple of this: a cache
/// line, and the widest vector register.
inline constexpr int64_t memoryAlignment = 64;

inline int64_t alignBytes(int64_t bytes) {
  return llvm::alignTo(bytes, memoryAlignment);
}

/// Bytes of one element; i1 takes a whole one.
inline int64_t getElementBytes(mlir::Type type) {
  return llvm::divideCeil(type.getIntOrFloatBitWidth(), 8);
}

/// Bytes of a dense tensor or memref of static shape.
inline int64_t getBytes(mlir::ShapedType type) {
  return type.getNumElements() * getElementBytes(type.getElementType());
}

/// Part `index` of `rows` rows divided in `parts`, as torch.tensor_split does:
/// the first rows % parts parts have one row more.
struct Rows {
  int64_t begin, size;
};
inline Rows splitRows(int64_t rows, int64_t parts, int64_t index) {
  int64_t size = rows / parts, longer = rows % parts;
  return {index * size + std::min(index, longer), size + (index < longer)};
}

} // namespace piper

#endif // PIPER_PASSES_PLAN_SIZES_H
