// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.cpp - the Piper dialect -------------------------------===//

#include "dialect/PiperDialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace piper;

#include "dialect/PiperDialect.cpp.inc"
#include "dialect/PiperEnums.cpp.inc"
#include "dialect/PiperInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "dialect/PiperOps.cpp.inc"

void PiperDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialect/PiperOps.cpp.inc"
      >();
}
