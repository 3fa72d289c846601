// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "dialect/PiperDialect.h"
#include "dialect/capi/Piper.h"
#include "mlir/CAPI/Registration.h"

MLIR_DEFINE_CAPI_DIALECT_REGISTRATION(Piper, piper, piper::PiperDialect)
