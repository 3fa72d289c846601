// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperEnums.td - enums of the Piper dialect ---===//

#ifndef PIPER_ENUMS_TD
#define PIPER_ENUMS_TD

include "dialect/PiperDialect.td"

#endif // PIPER_ENUMS_TD
