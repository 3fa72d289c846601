// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperInterfaces.h - operation interfaces -----------------*- C++ -*-===//

#ifndef PIPER_DIALECT_PIPERINTERFACES_H
#define PIPER_DIALECT_PIPERINTERFACES_H

#include "dialect/PiperTypes.h"
#include "mlir/IR/OpDefinition.h"

#include "dialect/PiperInterfaces.h.inc"

#endif // PIPER_DIALECT_PIPERINTERFACES_H
