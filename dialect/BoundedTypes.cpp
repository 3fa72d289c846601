// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialect/BoundedTypes.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

static constexpr int64_t kLargest = int64_t(1) << 48;

bool piper::isBounded(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasRank())
    return true;
  int64_t count = 1;
  for (int64_t extent : shaped.getShape()) {
    // A dimension of zero must not hide another.
    if (ShapedType::isDynamic(extent) || extent == 0)
      continue;
    if (llvm::MulOverflow(count, extent, count) || count > kLargest)
      return false;
  }
  return true;
}
