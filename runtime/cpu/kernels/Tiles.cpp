// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tile of c stays in registers while the depth is walked. How many rows and
// vectors it has is a matter of the registers: of 32 wide ones, 24 hold sums.
#include "runtime/cpu/kernels/Tiles.h"
#include "runtime/cpu/kernels/Vector.h"

namespace piper::runtime {
namespace {

struct Product {
  int64_t rows, columns, depth;
  TileOperand a;
  const float *b;
  int64_t bStride;
  bool accumulate;
  float *c;
  int64_t cStride;
};

template <int rows, int vectors>
PIPER_INLINE void tile(const Product &p, int64_t row, int64_t column) {
  const float *a = p.a.data + row * p.a.rowStride, *b = p.b + column;
  float *c = p.c + row * p.cStride + column;
  Floats sums[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      if (p.accumulate)
        load(sums[r][v], c + r * p.cStride + v * kLanes);
      else
        sums[r][v] = Floats{};
  for (int64_t k = 0; k < p.depth; ++k) {
    Floats right[vectors];
    for (int v = 0; v < vectors; ++v)
      load(right[v], b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      float left = a[r * p.a.rowStride];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        sums[r][v] += left * right[v];
    }
    a += p.a.depthStride;
    b += p.bStride;
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      store(sums[r][v], c + r * p.cStride + v * kLanes);
}

/// All rows of one column of tiles: as many of the largest size as fit, then
/// each smaller size.
template <int most, int vectors>
PIPER_INLINE void column(const Product &p, int64_t at) {
  int64_t row = 0;
  for (; row + most <= p.rows; row += most)
    tile<most, vectors>(p, row, at);
  if constexpr (most > 8)
    for (; row + 8 <= p.rows; row += 8)
      tile<8, vectors>(p, row, at);
  if constexpr (most > 4)
    for (; row + 4 <= p.rows; row += 4)
      tile<4, vectors>(p, row, at);
  for (; row < p.rows; ++row)
    tile<1, vectors>(p, row, at);
}

template <int rows, int vectors> PIPER_INLINE void multiply(const Product &p) {
  int64_t at = 0;
  for (; at + vectors * kLanes <= p.columns; at += vectors * kLanes)
    column<rows, vectors>(p, at);
  for (; at < p.columns; at += kLanes)
    column<rows, 1>(p, at);
}

__attribute__((target("arch=x86-64-v4"))) void multiplyV4(const Product &p) {
  multiply<12, 2>(p);
}
__attribute__((target("arch=x86-64-v3"))) void multiplyV3(const Product &p) {
  multiply<6, 1>(p);
}
void multiplyAnywhere(const Product &p) { multiply<2, 1>(p); }

using Multiply = void (*)(const Product &);

Multiply choose() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return multiplyV4;
  if (__builtin_cpu_supports("x86-64-v3"))
    return multiplyV3;
  return multiplyAnywhere;
}

} // namespace

void multiplyTiles(int64_t rows, int64_t columns, int64_t depth, TileOperand a,
                   const float *b, int64_t bStride, bool accumulate, float *c,
                   int64_t cStride) {
  static const Multiply chosen = choose();
  chosen({rows, columns, depth, a, b, bStride, accumulate, c, cStride});
}

} // namespace piper::runtime
