// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Saturating arithmetic: a size that overflows becomes the largest number,
// which no bound admits, so validation needs no overflow cases.
#ifndef PIPER_RUNTIME_PLAN_ARITHMETIC_H
#define PIPER_RUNTIME_PLAN_ARITHMETIC_H

#include <cstdint>

namespace piper::plan {

inline uint64_t addSat(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_add_overflow(a, b, &result) ? ~uint64_t(0) : result;
}

inline uint64_t mulSat(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? ~uint64_t(0) : result;
}

} // namespace piper::plan

#endif // PIPER_RUNTIME_PLAN_ARITHMETIC_H
