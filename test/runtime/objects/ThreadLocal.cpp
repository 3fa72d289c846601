// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uses thread-local data, so it is refused.
static thread_local int number = 3;
extern "C" void kernel(void *const *args) {
  *static_cast<int *>(args[0]) = ++number;
}
