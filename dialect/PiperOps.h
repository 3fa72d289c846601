// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperOps.h - operations ----------------------------------*- C++ -*-===//

#ifndef PIPER_DIALECT_PIPEROPS_H
#define PIPER_DIALECT_PIPEROPS_H

#include "dialect/BoundedIntegers.h"
#include "dialect/PiperInterfaces.h"
#include "dialect/PiperTypes.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define GET_OP_CLASSES
#include "dialect/PiperOps.h.inc"

#endif // PIPER_DIALECT_PIPEROPS_H
