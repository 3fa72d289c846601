// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperTypes.h - types and enumerations --------------------*- C++ -*-===//

#ifndef PIPER_DIALECT_PIPERTYPES_H
#define PIPER_DIALECT_PIPERTYPES_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

#include "dialect/PiperEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialect/PiperAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialect/PiperTypes.h.inc"

#endif // PIPER_DIALECT_PIPERTYPES_H
