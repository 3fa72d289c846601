// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperInterfaces.td - interfaces of the Piper dialect ---===//

#ifndef PIPER_INTERFACES_TD
#define PIPER_INTERFACES_TD

include "dialect/PiperDialect.td"

#endif // PIPER_INTERFACES_TD
