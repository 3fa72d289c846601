// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.h - the Piper dialect -----------------------*- C++ -*-===//

#ifndef PIPER_DIALECT_PIPERDIALECT_H
#define PIPER_DIALECT_PIPERDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialect/PiperDialect.h.inc"
#include "dialect/PiperEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialect/PiperAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialect/PiperTypes.h.inc"

#include "dialect/PiperInterfaces.h.inc"
#define GET_OP_CLASSES
#include "dialect/PiperOps.h.inc"

#endif // PIPER_DIALECT_PIPERDIALECT_H
