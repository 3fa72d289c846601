// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_TEST_BENCH_RUNTIME_MEASURE_H
#define PIPER_TEST_BENCH_RUNTIME_MEASURE_H

#include "runtime/comm/SharedWord.h"

#include <algorithm>
#include <vector>

/// Durations of repeated calls, in microseconds.
struct Samples {
  std::vector<double> micros;

  double at(double quantile) const {
    std::vector<double> sorted = micros;
    std::sort(sorted.begin(), sorted.end());
    return sorted[size_t(quantile * double(sorted.size() - 1))];
  }
  double median() const { return at(0.5); }
  double least() const { return at(0); }
};

/// Calls `work` `warmup` + `repeats` times and keeps the times of the latter.
template <typename Work>
Samples measure(int warmup, int repeats, const Work &work) {
  Samples samples;
  for (int i = -warmup; i < repeats; ++i) {
    uint64_t begin = piper::runtime::nowNs();
    work();
    uint64_t end = piper::runtime::nowNs();
    if (i >= 0)
      samples.micros.push_back(double(end - begin) * 1e-3);
  }
  return samples;
}

#endif // PIPER_TEST_BENCH_RUNTIME_MEASURE_H
