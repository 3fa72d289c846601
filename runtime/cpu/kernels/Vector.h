// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectors of 16 floats by the compiler's vector extension: one source for every
// instruction set, with one order of additions.
#ifndef PIPER_RUNTIME_CPU_KERNELS_VECTOR_H
#define PIPER_RUNTIME_CPU_KERNELS_VECTOR_H

#include "runtime/Multiversion.h"

#include <cstdint>
#include <cstring>

namespace piper::runtime {

#define PIPER_INLINE inline __attribute__((always_inline))

constexpr int64_t kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));

PIPER_INLINE void load(Floats &vector, const float *from) {
  std::memcpy(&vector, from, sizeof(vector));
}
PIPER_INLINE void store(const Floats &vector, float *to) {
  std::memcpy(to, &vector, sizeof(vector));
}
PIPER_INLINE void broadcast(Floats &vector, float value) {
  for (int lane = 0; lane < kLanes; ++lane)
    vector[lane] = value;
}

/// x becomes exp(x): 2^n exp(r) with n = round(x / ln 2), within 2 ulp. Below
/// -105 it is 0, above 89 infinite; NaN stays NaN.
PIPER_INLINE void exponential(Floats &x) {
  x = x < -105.0f ? Floats{} - 105.0f : x;
  x = x > 89.0f ? Floats{} + 89.0f : x;
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
  const float magic = 12582912.0f;
  Floats shifted = x * 1.44269504f + magic;
  Floats n = shifted - magic;
  // ln 2 in two parts: the product with the first is exact.
  Floats r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Floats p =
      ((((Floats{} + 0.00139269266f) * r + 0.0083637739f) * r + 0.04166655f) *
           r +
       0.16666573f) *
          r +
      0.5f;
  Floats y = r * r * p + r + 1.0f;
  Ints exponent;
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  exponent -= 0x4B400000; // the bits of magic
  // Two factors, so that subnormal results and infinity come out right.
  Ints half = exponent >> 1;
  Ints scale1 = (half + 127) << 23, scale2 = (exponent - half + 127) << 23;
  Floats factor1, factor2;
  std::memcpy(&factor1, &scale1, sizeof(factor1));
  std::memcpy(&factor2, &scale2, sizeof(factor2));
  x = y * factor1 * factor2;
}

PIPER_INLINE float sumOf(const Floats &vector) {
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    sum += vector[lane];
  return sum;
}

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELS_VECTOR_H
