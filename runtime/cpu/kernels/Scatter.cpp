// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums into rows that indices choose, in the order of the indices.
#include "runtime/cpu/KernelFailure.h"
#include "runtime/cpu/kernels/Kernels.h"

#include <algorithm>
#include <cstdio>

namespace {

/// False after reporting, where `index` is not in [0, size).
bool inRange(const char *kernel, int64_t index, int64_t size) {
  if (index >= 0 && index < size)
    return true;
  char message[160];
  std::snprintf(message, sizeof(message),
                "%s: expected an index from 0 to %lld, got %lld", kernel,
                static_cast<long long>(size - 1),
                static_cast<long long>(index));
  piper_kernel_fail(message);
  return false;
}

void addRow(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

} // namespace

void piper_embedding_backward(void *const *args, const int64_t *imm) {
  const auto *gradient = static_cast<const float *>(args[0]);
  const auto *index = static_cast<const int64_t *>(args[1]);
  auto *weight = static_cast<float *>(args[2]);
  int64_t rows = imm[0], dim = imm[1], vocabulary = imm[2], padding = imm[3];
  std::fill_n(weight, vocabulary * dim, 0.0f);
  for (int64_t n = 0; n < rows; ++n)
    if (index[n] != padding || padding < 0)
      if (inRange("embedding_backward", index[n], vocabulary))
        addRow(weight + index[n] * dim, gradient + n * dim, dim);
}

void piper_index_put_accumulate(void *const *args, const int64_t *imm) {
  const auto *base = static_cast<const float *>(args[0]);
  const auto *index = static_cast<const int64_t *>(args[1]);
  const auto *value = static_cast<const float *>(args[2]);
  auto *out = static_cast<float *>(args[3]);
  int64_t rows = imm[0], dim = imm[1], size = imm[2];
  std::copy_n(base, size * dim, out);
  for (int64_t n = 0; n < rows; ++n) {
    int64_t row = index[n] < 0 ? index[n] + size : index[n];
    if (inRange("index_put", row, size))
      addRow(out + row * dim, value + n * dim, dim);
  }
}

void piper_scatter_add(void *const *args, const int64_t *imm) {
  const auto *base = static_cast<const float *>(args[0]);
  const auto *index = static_cast<const int64_t *>(args[1]);
  const auto *source = static_cast<const float *>(args[2]);
  auto *out = static_cast<float *>(args[3]);
  int64_t outer = imm[0], count = imm[1], inner = imm[2], size = imm[3];
  std::copy_n(base, outer * size * inner, out);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t n = 0; n < count; ++n)
      for (int64_t i = 0; i < inner; ++i) {
        int64_t from = (o * count + n) * inner + i;
        if (inRange("scatter_add", index[from], size))
          out[(o * size + index[from]) * inner + i] += source[from];
      }
}
