// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_MULTIVERSION_H
#define PIPER_RUNTIME_MULTIVERSION_H

// The build is for any x86-64; the loader picks the version of a function for
// the machine. Sanitizers start too late for that mechanism.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) &&                   \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define PIPER_MULTIVERSION                                                     \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PIPER_MULTIVERSION
#endif

#endif // PIPER_RUNTIME_MULTIVERSION_H
