// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Would run code when it is loaded, so it is refused.
extern "C" void *memset(void *, int, unsigned long);
static char area[8];
struct Initializer {
  Initializer() { memset(area, 1, sizeof(area)); }
};
static Initializer initializer;
extern "C" void kernel(void *const *args) {
  *static_cast<char *>(args[0]) = area[0];
}
