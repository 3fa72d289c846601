// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All operations of the Piper dialect.

#ifndef PIPER_OPS_TD
#define PIPER_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "dialect/PiperTypes.td"
include "dialect/PiperInterfaces.td"
include "dialect/PiperSymbolOps.td"
include "dialect/PiperComputeOps.td"
include "dialect/PiperCollectiveOps.td"
include "dialect/PiperDirectiveOps.td"
include "dialect/PiperKernelOps.td"
include "dialect/PiperPlanAttrs.td"
include "dialect/PiperPlanOps.td"

#endif // PIPER_OPS_TD
