// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Enums.cpp - C API of the dialect's enumerations --------------------===//

#include "dialect/PiperTypes.h"
#include "dialect/capi/Piper.h"
#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"

#define PIPER_ENUM(NAME)                                                       \
  MlirAttribute piper##NAME##AttrGet(MlirContext context, Piper##NAME value) { \
    return wrap(piper::NAME##Attr::get(unwrap(context),                        \
                                       static_cast<piper::NAME>(value)));      \
  }                                                                            \
  bool piperAttributeIsA##NAME(MlirAttribute attribute) {                      \
    return llvm::isa<piper::NAME##Attr>(unwrap(attribute));                    \
  }                                                                            \
  Piper##NAME piper##NAME##AttrGetValue(MlirAttribute attribute) {             \
    return static_cast<Piper##NAME>(                                           \
        llvm::cast<piper::NAME##Attr>(unwrap(attribute)).getValue());          \
  }                                                                            \
  MlirStringRef piper##NAME##GetName(Piper##NAME value) {                      \
    return wrap(piper::stringify##NAME(static_cast<piper::NAME>(value)));      \
  }

PIPER_ENUM(PassKind)
PIPER_ENUM(StateKind)
PIPER_ENUM(Reduction)

#define PIPER_SAME(NAME, CASE, MEMBER)                                         \
  static_assert(static_cast<int>(Piper##NAME##CASE) ==                         \
                    static_cast<int>(piper::NAME::MEMBER),                     \
                "the C enumerators follow PiperEnums.td")
PIPER_SAME(PassKind, F, F);
PIPER_SAME(PassKind, B, B);
PIPER_SAME(PassKind, I, I);
PIPER_SAME(PassKind, W, W);
PIPER_SAME(StateKind, Parameter, parameter);
PIPER_SAME(StateKind, Buffer, buffer);
PIPER_SAME(StateKind, Constant, constant);
PIPER_SAME(Reduction, Sum, sum);
PIPER_SAME(Reduction, Max, max);
