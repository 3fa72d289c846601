// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/kernels/Kernels.h"

// Sums in double, as torch does.
void piper_cumsum(void *const *args, const int64_t *imm) {
  const auto *x = static_cast<const float *>(args[0]);
  auto *out = static_cast<float *>(args[1]);
  int64_t outer = imm[0], count = imm[1], inner = imm[2];
  std::vector<double> sums(inner);
  for (int64_t o = 0; o < outer; ++o) {
    sums.assign(inner, 0.0);
    for (int64_t n = 0; n < count; ++n)
      for (int64_t i = 0; i < inner; ++i) {
        int64_t at = (o * count + n) * inner + i;
        sums[i] += x[at];
        out[at] = static_cast<float>(sums[i]);
      }
  }
}
