// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Types.cpp - C API of the dialect's types ---------------------------===//

#include "dialect/PiperTypes.h"
#include "dialect/capi/Piper.h"
#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"

#define PIPER_TYPE(NAME)                                                       \
  bool piperTypeIsA##NAME(MlirType type) {                                     \
    return llvm::isa<piper::NAME##Type>(unwrap(type));                         \
  }                                                                            \
  MlirType piper##NAME##TypeGet(MlirContext context) {                         \
    return wrap(piper::NAME##Type::get(unwrap(context)));                      \
  }                                                                            \
  MlirTypeID piper##NAME##TypeGetTypeID(void) {                                \
    return wrap(piper::NAME##Type::getTypeID());                               \
  }

PIPER_TYPE(Bundle)
PIPER_TYPE(Token)
PIPER_TYPE(Message)
