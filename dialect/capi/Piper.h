/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*===- Piper.h - C API of the Piper dialect -----------------------*- C -*-===*/

#ifndef PIPER_DIALECT_CAPI_PIPER_H
#define PIPER_DIALECT_CAPI_PIPER_H

#include "mlir-c/IR.h"

#ifdef __cplusplus
extern "C" {
#endif

MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(Piper, piper);

/*===----------------------------------------------------------------------===*/
/* Types                                                                      */
/*===----------------------------------------------------------------------===*/

/* !piper.bundle: what a forward saves for its backward. */
MLIR_CAPI_EXPORTED bool piperTypeIsABundle(MlirType type);
MLIR_CAPI_EXPORTED MlirType piperBundleTypeGet(MlirContext context);
MLIR_CAPI_EXPORTED MlirTypeID piperBundleTypeGetTypeID(void);

/* !piper.token: order that data does not give. */
MLIR_CAPI_EXPORTED bool piperTypeIsAToken(MlirType type);
MLIR_CAPI_EXPORTED MlirType piperTokenTypeGet(MlirContext context);
MLIR_CAPI_EXPORTED MlirTypeID piperTokenTypeGetTypeID(void);

/* !piper.message: a value on its way from one device group to another. */
MLIR_CAPI_EXPORTED bool piperTypeIsAMessage(MlirType type);
MLIR_CAPI_EXPORTED MlirType piperMessageTypeGet(MlirContext context);
MLIR_CAPI_EXPORTED MlirTypeID piperMessageTypeGetTypeID(void);

/*===----------------------------------------------------------------------===*/
/* Enumerations                                                               */
/*===----------------------------------------------------------------------===*/

typedef enum PiperPassKind {
  PiperPassKindF = 0,
  PiperPassKindB = 1,
  PiperPassKindI = 2,
  PiperPassKindW = 3
} PiperPassKind;

typedef enum PiperStateKind {
  PiperStateKindParameter = 0,
  PiperStateKindBuffer = 1,
  PiperStateKindConstant = 2
} PiperStateKind;

typedef enum PiperReduction {
  PiperReductionSum = 0,
  PiperReductionMax = 1
} PiperReduction;

/* The attribute that an operation holds for an enumerator, the enumerator of
 * such an attribute, and its name in text (empty if it is none). */
MLIR_CAPI_EXPORTED MlirAttribute piperPassKindAttrGet(MlirContext context,
                                                      PiperPassKind value);
MLIR_CAPI_EXPORTED bool piperAttributeIsAPassKind(MlirAttribute attribute);
MLIR_CAPI_EXPORTED PiperPassKind
piperPassKindAttrGetValue(MlirAttribute attribute);
MLIR_CAPI_EXPORTED MlirStringRef piperPassKindGetName(PiperPassKind value);

MLIR_CAPI_EXPORTED MlirAttribute piperStateKindAttrGet(MlirContext context,
                                                       PiperStateKind value);
MLIR_CAPI_EXPORTED bool piperAttributeIsAStateKind(MlirAttribute attribute);
MLIR_CAPI_EXPORTED PiperStateKind
piperStateKindAttrGetValue(MlirAttribute attribute);
MLIR_CAPI_EXPORTED MlirStringRef piperStateKindGetName(PiperStateKind value);

MLIR_CAPI_EXPORTED MlirAttribute piperReductionAttrGet(MlirContext context,
                                                       PiperReduction value);
MLIR_CAPI_EXPORTED bool piperAttributeIsAReduction(MlirAttribute attribute);
MLIR_CAPI_EXPORTED PiperReduction
piperReductionAttrGetValue(MlirAttribute attribute);
MLIR_CAPI_EXPORTED MlirStringRef piperReductionGetName(PiperReduction value);

#ifdef __cplusplus
}
#endif

#endif /* PIPER_DIALECT_CAPI_PIPER_H */
