// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Refers to a function that kernels may not use.
extern "C" int system(const char *);
extern "C" void kernel(void *const *args) {
  *static_cast<int *>(args[0]) = system("true");
}
