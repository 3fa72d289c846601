// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.cpp - registration of the Piper dialect ---------------===//

#include "dialect/PiperDialect.h"
#include "dialect/PlanAttrs.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace piper;

#include "dialect/PiperDialect.cpp.inc"
#include "dialect/PiperEnums.cpp.inc"
#include "dialect/PiperInterfaces.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialect/PiperAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialect/PiperTypes.cpp.inc"
#define GET_OP_CLASSES
#include "dialect/PiperOps.cpp.inc"

void PiperDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/PiperAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/PiperTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/PiperOps.cpp.inc"
      >();
}

LogicalResult PiperDialect::verifyOperationAttribute(Operation *op,
                                                     NamedAttribute attribute) {
  if (attribute.getName() != getPhaseAttrName())
    return success();
  if (!isa<ModuleOp>(op))
    return op->emitOpError("expected ")
           << getPhaseAttrName() << " on a module, got it here";
  auto phase = dyn_cast<StringAttr>(attribute.getValue());
  if (phase &&
      (phase == "imported" || phase == "scheduled" || phase == "planned"))
    return success();
  return op->emitOpError("expected ")
         << getPhaseAttrName()
         << " = \"imported\", \"scheduled\" or \"planned\", got "
         << attribute.getValue();
}
