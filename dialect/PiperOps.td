// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperOps.td - umbrella of the Piper dialect ---------------------------===//
//
// TableGen reads this file; each group of operations has its own file.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_OPS_TD
#define PIPER_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "dialect/PiperInterfaces.td"
include "dialect/PiperStreamOps.td"

#endif // PIPER_OPS_TD
