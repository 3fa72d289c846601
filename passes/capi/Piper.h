/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*===- Piper.h - C API of Piper's passes and tools ----------------*- C -*-===*/

#ifndef PIPER_PASSES_CAPI_PIPER_H
#define PIPER_PASSES_CAPI_PIPER_H

#include "mlir-c/IR.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds Piper's dialect and the upstream dialects, with their extensions. */
MLIR_CAPI_EXPORTED void piperRegisterDialects(MlirDialectRegistry registry);

/* Registers Piper's passes and pipelines and the upstream ones, once. */
MLIR_CAPI_EXPORTED void piperRegisterPasses(void);

/* The piper-opt tool; returns its exit code. */
MLIR_CAPI_EXPORTED int piperOptMain(int argc, char **argv);

/* Hands the plan file of a planned module to `result`, or a message to
 * `error`. `kernels` and `workspaceBytes` have `numKernels` entries: the
 * scratch memory of compiled kernels. Returns whether it succeeded. */
MLIR_CAPI_EXPORTED bool piperExportPlan(MlirModule module, intptr_t numKernels,
                                        MlirStringRef const *kernels,
                                        uint64_t const *workspaceBytes,
                                        MlirStringCallback result,
                                        MlirStringCallback error,
                                        void *userData);

/* Hands the names of the kernels that a planned module launches to `callback`,
 * one by one, in the order of their records. */
MLIR_CAPI_EXPORTED void piperPlanKernels(MlirModule module,
                                         MlirStringCallback callback,
                                         void *userData);

#ifdef __cplusplus
}
#endif

#endif /* PIPER_PASSES_CAPI_PIPER_H */
