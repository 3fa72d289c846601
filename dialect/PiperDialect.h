// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.h - the Piper dialect, all of it ------------*- C++ -*-===//

#ifndef PIPER_DIALECT_PIPERDIALECT_H
#define PIPER_DIALECT_PIPERDIALECT_H

#include "dialect/PiperOps.h"
#include "mlir/IR/Dialect.h"

#include "dialect/PiperDialect.h.inc"

namespace piper {

/// Marks an argument of a function that nothing reads after the call, so that
/// the function may overwrite it.
inline constexpr llvm::StringLiteral kDonatedAttr = "piper.donated";

} // namespace piper

#endif // PIPER_DIALECT_PIPERDIALECT_H
