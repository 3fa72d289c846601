// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/kernels/Gemm.h"
#include "runtime/cpu/kernels/Kernels.h"
#include "runtime/cpu/kernels/OneThread.h"

#include <algorithm>
#include <dnnl.h>

namespace piper::runtime {

void gemm(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b,
          float beta, float *c, int64_t rowStride) {
  if (m == 0 || n == 0)
    return;
  if (k == 0) {
    if (beta == 0)
      for (int64_t row = 0; row < m; ++row)
        std::fill_n(c + row * rowStride, n, 0.0f);
    return;
  }
  OneThread guard;
  // oneDNN checks row strides even where there is one row.
  int64_t strideA = std::max(a.rowStride, a.transposed ? m : k);
  int64_t strideB = std::max(b.rowStride, b.transposed ? k : n);
  dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha,
             a.data, strideA, b.data, strideB, beta, c, std::max(rowStride, n));
}

} // namespace piper::runtime

using piper::runtime::gemm;

void piper_sgemm(void *const *args, const int64_t *imm) {
  const auto *a = static_cast<const float *>(args[0]);
  const auto *b = static_cast<const float *>(args[1]);
  auto *c = static_cast<float *>(args[2]);
  for (int64_t i = 0; i < imm[0]; ++i)
    gemm(imm[1], imm[2], imm[3], 1.0f, {a + i * imm[10], imm[7], imm[4] != 0},
         {b + i * imm[11], imm[8], imm[5] != 0}, imm[6] ? 1.0f : 0.0f,
         c + i * imm[12], imm[9]);
}

void piper_sgemm_batched(void *const *args, const int64_t *imm) {
  piper_sgemm(args, imm);
}
