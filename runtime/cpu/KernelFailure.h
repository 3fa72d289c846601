// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a kernel says that its data is wrong (an index out of range): it calls
// piper_kernel_fail and returns. The launch that called it then fails.
#ifndef PIPER_RUNTIME_CPU_KERNELFAILURE_H
#define PIPER_RUNTIME_CPU_KERNELFAILURE_H

/// Keeps the first message of the calling thread.
extern "C" void piper_kernel_fail(const char *message);

namespace piper::runtime {

/// The calling thread's message, or null; forgets it with the next call.
const char *takeKernelFailure();

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELFAILURE_H
