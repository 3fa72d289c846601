// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/KernelFailure.h"

#include <cstring>

namespace {

struct Failure {
  bool isSet = false;
  char message[400] = {};
};
thread_local Failure failure;

} // namespace

void piper_kernel_fail(const char *message) {
  if (failure.isSet)
    return;
  failure.isSet = true;
  std::strncpy(failure.message, message, sizeof(failure.message) - 1);
}

namespace piper::runtime {

const char *takeKernelFailure() {
  if (!failure.isSet)
    return nullptr;
  failure.isSet = false;
  return failure.message;
}

} // namespace piper::runtime
