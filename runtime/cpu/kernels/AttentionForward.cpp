// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of queries against all keys they see: the scores of one block stay in
// cache, and the part above the diagonal is never computed.
#include "runtime/cpu/kernels/Attention.h"
#include "runtime/cpu/kernels/Gemm.h"
#include "runtime/cpu/kernels/Kernels.h"
#include "runtime/cpu/kernels/Vector.h"

#include <cmath>
#include <limits>

namespace piper::runtime {
namespace {

/// Softmax of `row[0, count)` without the division; zero up to `width`.
/// Returns the sum and stores the maximum.
PIPER_MULTIVERSION float exponentials(float *row, int64_t count, int64_t width,
                                      float *maximum) {
  float most = -std::numeric_limits<float>::infinity();
  Floats lanes;
  broadcast(lanes, most);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    Floats x;
    load(x, row + j);
    lanes = x > lanes ? x : lanes;
  }
  for (int lane = 0; lane < kLanes; ++lane)
    most = lanes[lane] > most ? lanes[lane] : most;
  for (; j < count; ++j)
    most = row[j] > most ? row[j] : most;
  *maximum = most;

  Floats sums = {};
  for (j = 0; j + kLanes <= count; j += kLanes) {
    Floats x;
    load(x, row + j);
    x = x - most;
    exponential(x);
    store(x, row + j);
    sums += x;
  }
  float sum = sumOf(sums);
  if (j < count) {
    float rest[kLanes] = {};
    std::memcpy(rest, row + j, (count - j) * sizeof(float));
    Floats x;
    load(x, rest);
    x = x - most;
    exponential(x);
    store(x, rest);
    std::memcpy(row + j, rest, (count - j) * sizeof(float));
    for (int64_t i = 0; i < count - j; ++i)
      sum += rest[i];
  }
  for (j = count; j < width; ++j)
    row[j] = 0;
  return sum;
}

PIPER_MULTIVERSION void scaleRow(float *row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i)
    row[i] *= factor;
}

void forwardHead(const AttentionShape &shape, const float *q, const float *k,
                 const float *v, float *o, float *lse, float *scores) {
  int64_t dim = shape.dim, stride = shape.scoreStride();
  for (int64_t first = 0; first < shape.queries; first += kQueryBlock) {
    int64_t rows = std::min(kQueryBlock, shape.queries - first);
    int64_t width = shape.visible(first + rows - 1);
    gemm(rows, width, dim, shape.scale, {q + first * dim, dim}, {k, dim, true},
         0.0f, scores, stride);
    float inverse[kQueryBlock];
    for (int64_t i = 0; i < rows; ++i) {
      float maximum;
      float sum = exponentials(scores + i * stride, shape.visible(first + i),
                               width, &maximum);
      inverse[i] = 1.0f / sum;
      lse[first + i] = maximum + std::log(sum);
    }
    float *block = o + first * dim;
    gemm(rows, dim, width, 1.0f, {scores, stride}, {v, dim}, 0.0f, block, dim);
    for (int64_t i = 0; i < rows; ++i)
      scaleRow(block + i * dim, dim, inverse[i]);
  }
}

} // namespace
} // namespace piper::runtime

using namespace piper::runtime;

void piper_attention_forward(void *const *args, const int64_t *imm) {
  AttentionShape shape(imm);
  const auto *q = static_cast<const float *>(args[0]);
  const auto *k = static_cast<const float *>(args[1]);
  const auto *v = static_cast<const float *>(args[2]);
  auto *o = static_cast<float *>(args[3]);
  auto *lse = static_cast<float *>(args[4]);
  static thread_local Scratch scratch;
  float *scores = scratch.get(kQueryBlock * shape.scoreStride());
  if (!scores)
    return;
  for (int64_t index = 0; index < shape.batch * shape.heads; ++index) {
    AttentionShape::Head at = shape.head(index);
    forwardHead(shape, q + at.query, k + at.key, v + at.key, o + at.query,
                lse + at.row, scores);
  }
}
