// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_BINDING_TD
#define PIPER_BINDING_TD

include "dialect/PiperOps.td"

#endif // PIPER_BINDING_TD
