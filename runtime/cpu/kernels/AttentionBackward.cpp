// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The probabilities of each block of queries are computed again from lse.
// Key and value gradients add up over blocks, and over the query heads that
// share a key head, in a fixed order.
#include "runtime/cpu/kernels/Attention.h"
#include "runtime/cpu/kernels/Kernels.h"
#include "runtime/cpu/kernels/Vector.h"

#include <utility>

namespace piper::runtime {
namespace {

/// One query head. Keys (scaled) and values are there transposed too, [dim,
/// stride]; rows of all others come in whole vectors.
struct HeadPointers {
  const float *dOut, *q, *k, *keys, *values, *out, *lse;
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

/// Adds to the gradients of keys or values what a block of queries gives:
/// weights^T rows. Keys that the first queries do not see take only the others.
void addToKeys(const AttentionShape &shape, int64_t first, int64_t rows,
               const float *weights, const float *from, float *to) {
  int64_t dim = shape.paddedDim(), stride = shape.scoreStride();
  int64_t width = shape.visible(first + rows - 1);
  for (int64_t key = 0; key < width; key += kQueryStrip) {
    int64_t skipped = shape.causal ? std::max<int64_t>(key - first, 0) : 0;
    multiplyTiles(std::min(kQueryStrip, width - key), dim, rows - skipped,
                  {weights + skipped * stride + key, 1, stride},
                  from + (first + skipped) * dim, dim, true, to + key * dim,
                  dim);
  }
}

void backwardHead(const AttentionShape &shape, const HeadPointers &head,
                  float *scores, float *gradients) {
  int64_t dim = shape.paddedDim(), stride = shape.scoreStride();
  for (int64_t first = 0; first < shape.queries; first += kQueryBlock) {
    int64_t rows = std::min(kQueryBlock, shape.queries - first);
    int64_t width = shape.visible(first + rows - 1);
    for (int64_t strip = 0; strip < rows; strip += kQueryStrip) {
      int64_t count = std::min(kQueryStrip, rows - strip);
      int64_t at = first + strip, seen = shape.visible(at + count - 1);
      int64_t columns = AttentionShape::wholeTiles(seen);
      float *s = scores + strip * stride, *g = gradients + strip * stride;
      const float *dOut = head.dOut + at * dim;
      multiplyTiles(count, columns, shape.dim, {head.q + at * dim, dim, 1},
                    head.keys, stride, false, s, stride);
      multiplyTiles(count, columns, shape.dim, {dOut, dim, 1}, head.values,
                    stride, false, g, stride);
      for (int64_t i = 0; i < count; ++i) {
        float delta = dot(dOut + i * dim, head.out + (at + i) * dim, dim);
        // Zero as far as any query of the block sees: see addToKeys.
        softmaxBackward(s + i * stride, g + i * stride, shape.visible(at + i),
                        width, head.lse[at + i], delta, shape.scale);
      }
      multiplyTiles(count, dim, seen, {g, stride, 1}, head.k, dim, false,
                    head.dq + at * dim, dim);
    }
    addToKeys(shape, first, rows, scores, head.dOut, head.dv);
    addToKeys(shape, first, rows, gradients, head.q, head.dk);
  }
}

/// Parts of the working memory. Those that pad are empty where rows come in
/// whole vectors.
class Workspace {
public:
  explicit Workspace(const AttentionShape &shape) {
    bool pads = shape.paddedDim() != shape.dim;
    int64_t block = kQueryBlock * shape.scoreStride();
    int64_t turned = shape.dim * shape.scoreStride();
    int64_t queries = pads ? shape.queries * shape.paddedDim() : 0;
    int64_t keys = pads ? shape.keys * shape.paddedDim() : 0;
    static thread_local Scratch scratch;
    float *next = scratch.get(2 * block + 2 * turned + 4 * queries + 3 * keys);
    isThere = next != nullptr;
    for (auto [part, floats] :
         {std::pair(&scores, block), std::pair(&gradients, block),
          std::pair(&keysTurned, turned), std::pair(&valuesTurned, turned),
          std::pair(&dOut, queries), std::pair(&q, queries),
          std::pair(&out, queries), std::pair(&dq, queries),
          std::pair(&k, keys), std::pair(&dk, keys), std::pair(&dv, keys)}) {
      *part = next;
      next = next ? next + floats : next;
    }
  }

  bool isThere;
  float *scores, *gradients, *keysTurned, *valuesTurned;
  float *dOut, *q, *out, *dq, *k, *dk, *dv;
};

} // namespace
} // namespace piper::runtime

using namespace piper::runtime;

void piper_attention_backward(void *const *args, const int64_t *imm) {
  AttentionShape shape(imm);
  auto input = [&](int i) { return static_cast<const float *>(args[i]); };
  auto output = [&](int i) { return static_cast<float *>(args[i]); };
  Workspace own(shape);
  if (!own.isThere)
    return;
  int64_t dim = shape.dim, stride = shape.scoreStride();
  bool pads = shape.paddedDim() != dim;
  int64_t keySize = shape.keys * dim, querySize = shape.queries * dim;
  int64_t paddedKeySize = shape.keys * shape.paddedDim();
  for (int64_t keyHead = 0; keyHead < shape.batch * shape.keyHeads; ++keyHead) {
    const float *k = input(2) + keyHead * keySize;
    transpose(k, shape.keys, dim, shape.scale, own.keysTurned, stride);
    transpose(input(3) + keyHead * keySize, shape.keys, dim, 1.0f,
              own.valuesTurned, stride);
    float *dk = output(7) + keyHead * keySize;
    float *dv = output(8) + keyHead * keySize;
    HeadPointers head;
    head.keys = own.keysTurned, head.values = own.valuesTurned;
    head.k = padded(k, shape.keys, dim, own.k);
    head.dk = pads ? own.dk : dk, head.dv = pads ? own.dv : dv;
    std::fill_n(head.dk, paddedKeySize, 0.0f);
    std::fill_n(head.dv, paddedKeySize, 0.0f);
    for (int64_t i = 0; i < shape.group(); ++i) {
      int64_t index = keyHead * shape.group() + i, at = index * querySize;
      auto rows = [&](int argument, float *to) {
        return padded(input(argument) + at, shape.queries, dim, to);
      };
      head.dOut = rows(0, own.dOut), head.q = rows(1, own.q);
      head.out = rows(4, own.out);
      head.lse = input(5) + index * shape.queries;
      head.dq = pads ? own.dq : output(6) + at;
      backwardHead(shape, head, own.scores, own.gradients);
      unpad(head.dq, shape.queries, dim, output(6) + at);
    }
    unpad(head.dk, shape.keys, dim, dk);
    unpad(head.dv, shape.keys, dim, dv);
  }
}
