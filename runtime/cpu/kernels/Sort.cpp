// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NaN counts as larger than every number, and equal values keep their order,
// as in torch.sort(stable=True).
#include "runtime/cpu/kernels/Kernels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

bool less(float a, float b) {
  return a < b || (std::isnan(b) && !std::isnan(a));
}

/// Orders positions of `row` by value, then by position.
struct Before {
  const float *row;
  bool descending;
  bool operator()(int64_t a, int64_t b) const {
    float x = row[a], y = row[b];
    if (less(x, y))
      return !descending;
    if (less(y, x))
      return descending;
    return a < b;
  }
};

/// The first `take` of the `count` values of each row in order.
void sortRows(void *const *args, int64_t rows, int64_t count, int64_t take,
              bool descending) {
  const auto *x = static_cast<const float *>(args[0]);
  auto *values = static_cast<float *>(args[1]);
  auto *indices = static_cast<int64_t *>(args[2]);
  std::vector<int64_t> order(count);
  for (int64_t row = 0; row < rows; ++row) {
    std::iota(order.begin(), order.end(), 0);
    Before before{x + row * count, descending};
    if (take < count)
      std::partial_sort(order.begin(), order.begin() + take, order.end(),
                        before);
    else
      std::sort(order.begin(), order.end(), before);
    for (int64_t i = 0; i < take; ++i) {
      values[row * take + i] = before.row[order[i]];
      indices[row * take + i] = order[i];
    }
  }
}

} // namespace

// An order is also right where the caller asks for none.
void piper_topk(void *const *args, const int64_t *imm) {
  sortRows(args, imm[0], imm[1], imm[2], imm[3] != 0);
}

void piper_sort(void *const *args, const int64_t *imm) {
  sortRows(args, imm[0], imm[1], imm[1], imm[2] != 0);
}
