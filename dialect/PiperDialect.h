// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.h - the Piper dialect, all of it ------------*- C++ -*-===//

#ifndef PIPER_DIALECT_PIPERDIALECT_H
#define PIPER_DIALECT_PIPERDIALECT_H

#include "dialect/PiperOps.h"
#include "mlir/IR/Dialect.h"

#include "dialect/PiperDialect.h.inc"

#endif // PIPER_DIALECT_PIPERDIALECT_H
