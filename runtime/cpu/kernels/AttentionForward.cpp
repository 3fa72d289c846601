// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Strips of queries against all keys they see: the scores of a strip stay in
// cache, and the part above the diagonal is not computed.
#include "runtime/cpu/kernels/Attention.h"
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

/// One query head. `keys` [dim, stride] are transposed and scaled, rows of q, v
/// and o come in whole vectors.
void forwardHead(const AttentionShape &shape, const float *q, const float *keys,
                 const float *v, float *o, float *lse, float *scores) {
  int64_t dim = shape.paddedDim(), stride = shape.scoreStride();
  for (int64_t first = 0; first < shape.queries; first += kQueryStrip) {
    int64_t rows = std::min(kQueryStrip, shape.queries - first);
    int64_t width = shape.visible(first + rows - 1);
    multiplyTiles(rows, AttentionShape::wholeTiles(width), shape.dim,
                  {q + first * dim, dim, 1}, keys, stride, false, scores,
                  stride);
    float inverse[kQueryStrip];
    for (int64_t i = 0; i < rows; ++i) {
      float maximum;
      float sum = exponentials(scores + i * stride, shape.visible(first + i),
                               width, &maximum);
      inverse[i] = 1.0f / sum;
      lse[first + i] = maximum + std::log(sum);
    }
    float *block = o + first * dim;
    multiplyTiles(rows, dim, width, {scores, stride, 1}, v, dim, false, block,
                  dim);
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
  int64_t dim = shape.dim, padDim = shape.paddedDim();
  int64_t stride = shape.scoreStride();
  bool pads = padDim != dim;
  int64_t queryPad = pads ? shape.queries * padDim : 0;
  int64_t keyPad = pads ? shape.keys * padDim : 0;
  float *scores =
      scratch.get((kQueryStrip + dim) * stride + 2 * queryPad + keyPad);
  if (!scores)
    return;
  float *keys = scores + kQueryStrip * stride, *ownValues = keys + dim * stride;
  float *ownQueries = ownValues + keyPad, *ownOut = ownQueries + queryPad;
  int64_t keySize = shape.keys * dim, querySize = shape.queries * dim;
  for (int64_t keyHead = 0; keyHead < shape.batch * shape.keyHeads; ++keyHead) {
    transpose(k + keyHead * keySize, shape.keys, dim, shape.scale, keys,
              stride);
    const float *values =
        padded(v + keyHead * keySize, shape.keys, dim, ownValues);
    for (int64_t i = 0; i < shape.group(); ++i) {
      int64_t head = keyHead * shape.group() + i;
      float *out = pads ? ownOut : o + head * querySize;
      forwardHead(shape,
                  padded(q + head * querySize, shape.queries, dim, ownQueries),
                  keys, values, out, lse + head * shape.queries, scores);
      unpad(out, shape.queries, dim, o + head * querySize);
    }
  }
}
