// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_DIALECT_BOUNDEDTYPES_H
#define PIPER_DIALECT_BOUNDEDTYPES_H

#include "mlir/IR/Types.h"

namespace piper {

/// Whether a tensor has at most 2^48 elements, as far as its extents are known:
/// MLIR does not look, and counts them in 64 bits.
bool isBounded(mlir::Type type);

} // namespace piper

#endif // PIPER_DIALECT_BOUNDEDTYPES_H
