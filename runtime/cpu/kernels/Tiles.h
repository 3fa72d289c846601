// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_KERNELS_TILES_H
#define PIPER_RUNTIME_CPU_KERNELS_TILES_H

#include <cstdint>

namespace piper::runtime {

/// The left operand of a small product: element (row, k) is at
/// row * rowStride + k * depthStride.
struct TileOperand {
  const float *data;
  int64_t rowStride, depthStride;
};

/// Columns come in whole vectors.
constexpr int64_t kTileColumns = 16;

/// c[rows, columns] = a[rows, depth] b[depth, columns], or adds that to c.
/// `columns` is a multiple of kTileColumns; rows of b and c lie `bStride` and
/// `cStride` apart. For products too small for a packed GEMM: nothing is
/// packed.
void multiplyTiles(int64_t rows, int64_t columns, int64_t depth, TileOperand a,
                   const float *b, int64_t bStride, bool accumulate, float *c,
                   int64_t cStride);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELS_TILES_H
