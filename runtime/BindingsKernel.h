// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_BINDINGSKERNEL_H
#define PIPER_RUNTIME_BINDINGSKERNEL_H

#include <nanobind/nanobind.h>

namespace piper::runtime {

/// Adds KernelObject to the module.
void bindKernel(nanobind::module_ &m);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_BINDINGSKERNEL_H
