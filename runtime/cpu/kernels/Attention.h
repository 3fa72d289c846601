// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_KERNELS_ATTENTION_H
#define PIPER_RUNTIME_CPU_KERNELS_ATTENTION_H

#include "runtime/cpu/KernelFailure.h"
#include "runtime/cpu/kernels/Tiles.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace piper::runtime {

/// Queries are taken in blocks of this many rows, scores in strips of fewer:
/// behind the last key that a strip sees nothing is computed.
constexpr int64_t kQueryBlock = 48;
constexpr int64_t kQueryStrip = 12;

struct AttentionShape {
  int64_t batch, heads, keyHeads, queries, keys, dim;
  bool causal;
  float scale;

  explicit AttentionShape(const int64_t *imm)
      : batch(imm[0]), heads(imm[1]), keyHeads(imm[2]), queries(imm[3]),
        keys(imm[4]), dim(imm[5]), causal(imm[6] != 0) {
    double value;
    std::memcpy(&value, &imm[7], sizeof(value));
    scale = static_cast<float>(value);
  }

  /// Keys that query `row` attends to.
  int64_t visible(int64_t row) const {
    return causal ? std::min(row + 1, keys) : keys;
  }
  int64_t group() const { return heads / keyHeads; }
  /// Columns of the operands of products: whole vectors.
  int64_t paddedDim() const { return wholeTiles(dim); }
  /// Row stride of a block of scores.
  int64_t scoreStride() const { return wholeTiles(keys); }

  static int64_t wholeTiles(int64_t columns) {
    return (columns + kTileColumns - 1) / kTileColumns * kTileColumns;
  }
};

/// to[column, row] = factor * from[row, column], zero from `rows` to `stride`.
inline void transpose(const float *from, int64_t rows, int64_t columns,
                      float factor, float *to, int64_t stride) {
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row)
      to[column * stride + row] = factor * from[row * columns + column];
    std::fill(to + column * stride + rows, to + (column + 1) * stride, 0.0f);
  }
}

/// `rows` of `columns` with zeros behind, so that they come in whole vectors;
/// `from` itself where they do.
inline const float *padded(const float *from, int64_t rows, int64_t columns,
                           float *to) {
  int64_t stride = AttentionShape::wholeTiles(columns);
  if (stride == columns)
    return from;
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * columns, columns, to + row * stride);
    std::fill(to + row * stride + columns, to + (row + 1) * stride, 0.0f);
  }
  return to;
}

/// The way back: from rows of whole vectors to rows of `columns`.
inline void unpad(const float *from, int64_t rows, int64_t columns, float *to) {
  int64_t stride = AttentionShape::wholeTiles(columns);
  for (int64_t row = 0; row < rows && from != to; ++row)
    std::copy_n(from + row * stride, columns, to + row * columns);
}

/// Working memory of the calling thread, kept for its next call; null after a
/// report where there is none.
class Scratch {
public:
  ~Scratch() { std::free(memory); }
  float *get(int64_t floats) {
    size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
    if (bytes > capacity) {
      std::free(memory);
      memory = static_cast<float *>(std::aligned_alloc(64, bytes));
      capacity = memory ? bytes : 0;
      if (!memory)
        piper_kernel_fail("attention: expected memory for a block of scores");
    }
    return memory;
  }

private:
  float *memory = nullptr;
  size_t capacity = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELS_ATTENTION_H
