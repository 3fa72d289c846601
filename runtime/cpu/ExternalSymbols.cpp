// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/ExternalSymbols.h"

#include "runtime/cpu/KernelFailure.h"
#include "runtime/cpu/kernels/Kernels.h"

#include <cmath>
#include <cstring>
#include <unordered_map>

namespace piper::runtime {
namespace {

using Table = std::unordered_map<std::string, const void *>;
using Unary32 = float (*)(float);
using Unary64 = double (*)(double);
using Binary32 = float (*)(float, float);
using Binary64 = double (*)(double, double);

template <typename Function>
void add(Table &table, const char *name, Function function) {
  table.emplace(name, reinterpret_cast<const void *>(function));
}

Table makeTable() {
  Table table;
#define UNARY(NAME)                                                            \
  add(table, #NAME "f", static_cast<Unary32>(::NAME##f));                      \
  add(table, #NAME, static_cast<Unary64>(::NAME))
#define BINARY(NAME)                                                           \
  add(table, #NAME "f", static_cast<Binary32>(::NAME##f));                     \
  add(table, #NAME, static_cast<Binary64>(::NAME))
  UNARY(acos);
  UNARY(acosh);
  UNARY(asin);
  UNARY(asinh);
  UNARY(atan);
  UNARY(atanh);
  UNARY(cbrt);
  UNARY(ceil);
  UNARY(cos);
  UNARY(cosh);
  UNARY(erf);
  UNARY(erfc);
  UNARY(exp);
  UNARY(exp2);
  UNARY(expm1);
  UNARY(fabs);
  UNARY(floor);
  UNARY(lgamma);
  UNARY(log);
  UNARY(log10);
  UNARY(log1p);
  UNARY(log2);
  UNARY(nearbyint);
  UNARY(rint);
  UNARY(round);
  UNARY(roundeven);
  UNARY(sin);
  UNARY(sinh);
  UNARY(sqrt);
  UNARY(tan);
  UNARY(tanh);
  UNARY(tgamma);
  UNARY(trunc);
  BINARY(atan2);
  BINARY(copysign);
  BINARY(fmax);
  BINARY(fmin);
  BINARY(fmod);
  BINARY(hypot);
  BINARY(pow);
  BINARY(remainder);
#undef UNARY
#undef BINARY
  add(table, "fmaf", static_cast<float (*)(float, float, float)>(::fmaf));
  add(table, "fma", static_cast<double (*)(double, double, double)>(::fma));
  add(table, "ldexpf", static_cast<float (*)(float, int)>(::ldexpf));
  add(table, "ldexp", static_cast<double (*)(double, int)>(::ldexp));
  // What LLVM makes of sin(x) with cos(x), and of pow(10, x).
  using SinCos32 = void (*)(float, float *, float *);
  using SinCos64 = void (*)(double, double *, double *);
  add(table, "sincosf", static_cast<SinCos32>(::sincosf));
  add(table, "sincos", static_cast<SinCos64>(::sincos));
  add(table, "exp10f", static_cast<Unary32>(::exp10f));
  add(table, "exp10", static_cast<Unary64>(::exp10));
  add(table, "memcpy", ::memcpy);
  add(table, "memmove", ::memmove);
  add(table, "memset", ::memset);
  add(table, "piper_kernel_fail", ::piper_kernel_fail);
  for (const KernelSymbol &symbol : kernelSymbols())
    table.emplace(symbol.name, symbol.address);
  return table;
}

} // namespace

const void *findExternalSymbol(const std::string &name) {
  static const Table table = makeTable();
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

} // namespace piper::runtime
