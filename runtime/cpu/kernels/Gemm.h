// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_KERNELS_GEMM_H
#define PIPER_RUNTIME_CPU_KERNELS_GEMM_H

#include <cstdint>

namespace piper::runtime {

/// A row-major matrix inside a larger one.
struct Matrix {
  const float *data;
  int64_t rowStride;
  bool transposed = false;
};

/// c[m,n] = alpha op(a)[m,k] op(b)[k,n] + beta c, on the calling thread alone.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b,
          float beta, float *c, int64_t rowStride);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELS_GEMM_H
