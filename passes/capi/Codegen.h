/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*===- Codegen.h - C API of the object compiler -------------------*- C -*-===*/

#ifndef PIPER_PASSES_CAPI_CODEGEN_H
#define PIPER_PASSES_CAPI_CODEGEN_H

#include "mlir-c/Support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compiles a kernel module to an x86-64 ELF object. Calls either onObject and
 * onMetadata (JSON) and returns true, or onError and returns false. */
MLIR_CAPI_EXPORTED bool
piperCompileObject(MlirStringRef text, MlirStringRef cpu,
                   MlirStringRef features, unsigned optLevel,
                   MlirStringCallback onObject, MlirStringCallback onMetadata,
                   MlirStringCallback onError, void *userData);

/* The processor of this machine and its features, as LLVM names them. */
MLIR_CAPI_EXPORTED void piperHostCpu(MlirStringCallback onCpu,
                                     MlirStringCallback onFeatures,
                                     void *userData);

#ifdef __cplusplus
}
#endif

#endif /* PIPER_PASSES_CAPI_CODEGEN_H */
