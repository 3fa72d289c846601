// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Passes.h - Piper's passes --------------------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PASSES_H
#define PIPER_PASSES_PASSES_H

#include "dialect/PiperDialect.h"
#include "mlir/Pass/Pass.h"

namespace piper {
#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"
} // namespace piper

#endif // PIPER_PASSES_PASSES_H
