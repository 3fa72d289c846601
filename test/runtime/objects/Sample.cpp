// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiled to an object file that ObjectLoaderTest loads: code, constants,
// initialised and zeroed data, calls within and out of the object.
#include <cmath>
#include <cstring>

static const float table[4] = {1, 10, 100, 1000};
static int calls = 40;
static float scratch[256];
// An address in initialised data.
static const float *const start = &table[1];

__attribute__((noinline)) static float weigh(int i) { return table[i & 3]; }

extern "C" void weighted(void *const *args) {
  const float *x = static_cast<const float *>(args[0]);
  float *y = static_cast<float *>(args[1]);
  for (int i = 0; i < 16; ++i)
    scratch[i] = expf(x[i]) * weigh(i);
  std::memcpy(y, scratch, 16 * sizeof(float));
}

extern "C" void count(void *const *args) {
  static_cast<int *>(args[0])[0] = ++calls;
  static_cast<float *>(args[1])[0] = *start;
}
