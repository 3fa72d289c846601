// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_KERNELS_ATTENTION_H
#define PIPER_RUNTIME_CPU_KERNELS_ATTENTION_H

#include "runtime/cpu/KernelFailure.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace piper::runtime {

/// Queries are taken in blocks of this many rows.
constexpr int64_t kQueryBlock = 64;

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
  /// Where a head of a batch row starts, counted in elements: in q and o, in k
  /// and v (several heads share one of theirs), and in lse.
  struct Head {
    int64_t query, key, row;
  };
  Head head(int64_t index) const {
    int64_t group = heads / keyHeads;
    int64_t keyHead = index / heads * keyHeads + index % heads / group;
    return {index * queries * dim, keyHead * keys * dim, index * queries};
  }
  /// Row stride of a block of scores, whole vectors.
  int64_t scoreStride() const { return (keys + 15) / 16 * 16; }
};

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
