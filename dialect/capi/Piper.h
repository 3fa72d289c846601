/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*===- Piper.h - C API of the Piper dialect -----------------------*- C -*-===*/

#ifndef PIPER_DIALECT_CAPI_PIPER_H
#define PIPER_DIALECT_CAPI_PIPER_H

#include "mlir-c/IR.h"

#ifdef __cplusplus
extern "C" {
#endif

MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(Piper, piper);

#ifdef __cplusplus
}
#endif

#endif /* PIPER_DIALECT_CAPI_PIPER_H */
