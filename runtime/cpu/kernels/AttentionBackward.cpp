// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The probabilities of each block of queries are computed again from lse.
// Key and value gradients add up over blocks, and over the query heads that
// share a key head, in a fixed order.
#include "runtime/cpu/kernels/Attention.h"
#include "runtime/cpu/kernels/Gemm.h"
#include "runtime/cpu/kernels/Kernels.h"
#include "runtime/cpu/kernels/Vector.h"

namespace piper::runtime {
namespace {

struct HeadPointers {
  const float *dOut, *q, *k, *v, *out, *lse;
  float *dq, *dk, *dv;
};

/// scores become probabilities P = exp(scores - lse), and dP becomes
/// dS = P (dP - delta) scale; zero from `count` to `width`.
PIPER_MULTIVERSION void softmaxBackward(float *scores, float *gradients,
                                        int64_t count, int64_t width, float lse,
                                        float delta, float scale) {
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    Floats p, g;
    load(p, scores + j);
    load(g, gradients + j);
    p = p - lse;
    exponential(p);
    g = p * (g - delta) * scale;
    store(p, scores + j);
    store(g, gradients + j);
  }
  if (j < count) {
    float rest[kLanes] = {};
    std::memcpy(rest, scores + j, (count - j) * sizeof(float));
    Floats p;
    load(p, rest);
    p = p - lse;
    exponential(p);
    for (int lane = 0; j < count; ++j, ++lane) {
      scores[j] = p[lane];
      gradients[j] = p[lane] * (gradients[j] - delta) * scale;
    }
  }
  for (; j < width; ++j)
    scores[j] = gradients[j] = 0;
}

PIPER_MULTIVERSION float dot(const float *a, const float *b, int64_t count) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Floats x, y;
    load(x, a + i);
    load(y, b + i);
    sums += x * y;
  }
  float sum = sumOf(sums);
  for (; i < count; ++i)
    sum += a[i] * b[i];
  return sum;
}

void backwardHead(const AttentionShape &shape, const HeadPointers &head,
                  float *scores, float *gradients) {
  int64_t dim = shape.dim, stride = shape.scoreStride();
  for (int64_t first = 0; first < shape.queries; first += kQueryBlock) {
    int64_t rows = std::min(kQueryBlock, shape.queries - first);
    int64_t width = shape.visible(first + rows - 1);
    const float *q = head.q + first * dim, *dOut = head.dOut + first * dim;
    gemm(rows, width, dim, shape.scale, {q, dim}, {head.k, dim, true}, 0.0f,
         scores, stride);
    gemm(rows, width, dim, 1.0f, {dOut, dim}, {head.v, dim, true}, 0.0f,
         gradients, stride);
    for (int64_t i = 0; i < rows; ++i) {
      float delta = dot(dOut + i * dim, head.out + (first + i) * dim, dim);
      softmaxBackward(scores + i * stride, gradients + i * stride,
                      shape.visible(first + i), width, head.lse[first + i],
                      delta, shape.scale);
    }
    gemm(width, dim, rows, 1.0f, {scores, stride, true}, {dOut, dim}, 1.0f,
         head.dv, dim);
    gemm(rows, dim, width, 1.0f, {gradients, stride}, {head.k, dim}, 0.0f,
         head.dq + first * dim, dim);
    gemm(width, dim, rows, 1.0f, {gradients, stride, true}, {q, dim}, 1.0f,
         head.dk, dim);
  }
}

} // namespace
} // namespace piper::runtime

using namespace piper::runtime;

void piper_attention_backward(void *const *args, const int64_t *imm) {
  AttentionShape shape(imm);
  auto input = [&](int i) { return static_cast<const float *>(args[i]); };
  auto output = [&](int i) { return static_cast<float *>(args[i]); };
  static thread_local Scratch scratch;
  int64_t block = kQueryBlock * shape.scoreStride();
  float *scores = scratch.get(2 * block);
  if (!scores)
    return;
  int64_t keyElements = shape.batch * shape.keyHeads * shape.keys * shape.dim;
  std::fill_n(output(7), keyElements, 0.0f);
  std::fill_n(output(8), keyElements, 0.0f);
  for (int64_t index = 0; index < shape.batch * shape.heads; ++index) {
    AttentionShape::Head at = shape.head(index);
    backwardHead(shape,
                 {input(0) + at.query, input(1) + at.query, input(2) + at.key,
                  input(3) + at.key, input(4) + at.query, input(5) + at.row,
                  output(6) + at.query, output(7) + at.key, output(8) + at.key},
                 scores, scores + block);
  }
}
