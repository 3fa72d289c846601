// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Reduce.h"

#include "runtime/Multiversion.h"
#include "runtime/comm/Float16.h"

#include <algorithm>
#include <type_traits>

namespace piper::runtime {
namespace {

struct Bool {
  uint8_t value;
};

/// The type that sums and maxima are computed in.
template <typename T> struct Wide {
  using type = T;
};
template <> struct Wide<BFloat16> {
  using type = float;
};
template <> struct Wide<Float16> {
  using type = float;
};
template <> struct Wide<Bool> {
  using type = uint8_t;
};

template <typename T> typename Wide<T>::type widen(T value) {
  if constexpr (std::is_same_v<T, Bool>)
    return value.value != 0;
  else
    return static_cast<typename Wide<T>::type>(value);
}
template <typename T> T narrow(typename Wide<T>::type value) {
  if constexpr (std::is_same_v<T, Bool>)
    return {uint8_t(value != 0)};
  else
    return static_cast<T>(value);
}

template <typename W> W add(W a, W b) {
  // Integers wrap around, as in PyTorch.
  if constexpr (std::is_integral_v<W>)
    return W(std::make_unsigned_t<W>(a) + std::make_unsigned_t<W>(b));
  else
    return a + b;
}
template <typename W> W largest(W a, W b) {
  // A NaN wins, as in PyTorch's amax.
  return (a > b || a != a) ? a : b;
}

/// Elements handled at once; the partial results stay in the first cache.
constexpr uint64_t kTile = 1024;

template <typename T, bool isMax>
[[gnu::always_inline]] inline void
reduceTyped(char *const *sources, size_t numSources, uint64_t srcElement,
            uint64_t count, char *const *targets, size_t numTargets,
            uint64_t dstElement) {
  typename Wide<T>::type partial[kTile];
  for (uint64_t begin = 0; begin < count; begin += kTile) {
    uint64_t length = std::min(kTile, count - begin);
    for (size_t s = 0; s < numSources; ++s) {
      const T *source =
          reinterpret_cast<const T *>(sources[s]) + srcElement + begin;
      if (s == 0) {
        for (uint64_t i = 0; i < length; ++i)
          partial[i] = widen(source[i]);
        continue;
      }
      for (uint64_t i = 0; i < length; ++i) {
        auto value = widen(source[i]);
        partial[i] =
            isMax ? largest(partial[i], value) : add(partial[i], value);
      }
    }
    for (size_t t = 0; t < numTargets; ++t) {
      T *target = reinterpret_cast<T *>(targets[t]) + dstElement + begin;
      for (uint64_t i = 0; i < length; ++i)
        target[i] = narrow<T>(partial[i]);
    }
  }
}

#define PIPER_REDUCE(NAME, TYPE)                                               \
  PIPER_MULTIVERSION void NAME(bool isMax, char *const *sources,               \
                               size_t numSources, uint64_t srcElement,         \
                               uint64_t count, char *const *targets,           \
                               size_t numTargets, uint64_t dstElement) {       \
    if (isMax)                                                                 \
      reduceTyped<TYPE, true>(sources, numSources, srcElement, count, targets, \
                              numTargets, dstElement);                         \
    else                                                                       \
      reduceTyped<TYPE, false>(sources, numSources, srcElement, count,         \
                               targets, numTargets, dstElement);               \
  }
PIPER_REDUCE(reduceF32, float)
PIPER_REDUCE(reduceF64, double)
PIPER_REDUCE(reduceBF16, BFloat16)
PIPER_REDUCE(reduceF16, Float16)
PIPER_REDUCE(reduceI64, int64_t)
PIPER_REDUCE(reduceI32, int32_t)
PIPER_REDUCE(reduceI16, int16_t)
PIPER_REDUCE(reduceI8, int8_t)
PIPER_REDUCE(reduceI1, Bool)
#undef PIPER_REDUCE

} // namespace

void reduceElements(plan::DType dtype, plan::Reduction reduction,
                    char *const *sources, size_t numSources,
                    uint64_t srcElement, uint64_t count, char *const *targets,
                    size_t numTargets, uint64_t dstElement) {
  using Function = void (*)(bool, char *const *, size_t, uint64_t, uint64_t,
                            char *const *, size_t, uint64_t);
  static constexpr Function functions[plan::kNumDTypes] = {
      reduceF32, reduceF64, reduceBF16, reduceF16, reduceI64,
      reduceI32, reduceI16, reduceI8,   reduceI1};
  functions[size_t(dtype)](reduction == plan::Reduction::Max, sources,
                           numSources, srcElement, count, targets, numTargets,
                           dstElement);
}

void accumulateElements(plan::DType dtype, bool add, char *dst, const char *src,
                        uint64_t count) {
  if (!add) {
    std::memmove(dst, src, count * plan::byteWidth(dtype));
    return;
  }
  char *sources[2] = {dst, const_cast<char *>(src)};
  reduceElements(dtype, plan::Reduction::Sum, sources, 2, 0, count, &dst, 1, 0);
}

} // namespace piper::runtime
