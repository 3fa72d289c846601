// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_EXTERNALSYMBOLS_H
#define PIPER_RUNTIME_CPU_EXTERNALSYMBOLS_H

#include <string>

namespace piper::runtime {

/// Address of a function that compiled kernels may call: the kernel library,
/// libm, and memcpy, memmove, memset. Null for any other name.
const void *findExternalSymbol(const std::string &name);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_EXTERNALSYMBOLS_H
