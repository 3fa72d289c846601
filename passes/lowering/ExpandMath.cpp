// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ExpandMath.cpp - vectorizable scalar functions ---------------------===//
//
// The coefficients are Chebyshev interpolants of the functions named beside
// them, computed with 40 digits and rounded to f32.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_EXPANDMATH
#include "passes/Passes.h.inc"

namespace {
/// Builds f32 arithmetic whose order is kept: only contraction to fused
/// multiply-add is allowed.
class Emitter {
public:
  explicit Emitter(Operation *op) : builder(op), loc(op->getLoc()) {}

  Value constant(float value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getF32FloatAttr(value));
  }
  Value integer(int32_t value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getI32IntegerAttr(value));
  }
  template <typename Op> Value binary(Value a, Value b) {
    return Op::create(builder, loc, a, b, flags());
  }
  template <typename Op> Value integral(Value a, Value b) {
    return Op::create(builder, loc, a, b);
  }
  Value add(Value a, Value b) { return binary<arith::AddFOp>(a, b); }
  Value sub(Value a, Value b) { return binary<arith::SubFOp>(a, b); }
  Value mul(Value a, Value b) { return binary<arith::MulFOp>(a, b); }
  Value div(Value a, Value b) { return binary<arith::DivFOp>(a, b); }
  Value less(Value a, float b) {
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT, a,
                                 constant(b));
  }
  Value greater(Value a, float b) {
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGT, a,
                                 constant(b));
  }
  Value select(Value condition, Value a, Value b) {
    return arith::SelectOp::create(builder, loc, condition, a, b);
  }
  Value bits(Value value) {
    return arith::BitcastOp::create(builder, loc, builder.getI32Type(), value);
  }
  Value asFloat(Value value) {
    return arith::BitcastOp::create(builder, loc, builder.getF32Type(), value);
  }
  Value abs(Value value) { return math::AbsFOp::create(builder, loc, value); }
  Value copySign(Value magnitude, Value sign) {
    return math::CopySignOp::create(builder, loc, magnitude, sign);
  }
  /// c[0] + c[1] x + c[2] x^2 + … by Horner's rule.
  Value polynomial(Value x, ArrayRef<float> coefficients) {
    Value result = constant(coefficients.back());
    for (float coefficient : llvm::reverse(coefficients.drop_back()))
      result = add(mul(result, x), constant(coefficient));
    return result;
  }

  Value exp(Value x);
  Value tanh(Value x);
  Value erf(Value x);

private:
  arith::FastMathFlags flags() { return arith::FastMathFlags::contract; }

  OpBuilder builder;
  Location loc;
};

/// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2.
Value Emitter::exp(Value x) {
  // Below -105 the result is 0 and above 89 it is infinite. Ordered
  // comparisons keep NaN.
  x = select(less(x, -105.0f), constant(-105.0f), x);
  x = select(greater(x, 89.0f), constant(89.0f), x);
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits, with no
  // conversion that is undefined for NaN.
  const float magic = 12582912.0f;
  Value shifted = add(mul(x, constant(1.44269504f)), constant(magic));
  Value n = sub(shifted, constant(magic));
  // ln 2 in two parts: the product with the first is exact.
  Value r = sub(x, mul(n, constant(0.693359375f)));
  r = add(r, mul(n, constant(2.12194440e-4f)));
  // (exp(r) - 1 - r) / r^2
  Value p = polynomial(
      r, {0.5f, 0.16666573f, 0.04166655f, 0.0083637739f, 0.00139269266f});
  Value y = add(add(mul(mul(r, r), p), r), constant(1.0f));
  // 2^n as two factors, so that subnormal results and infinity come out right.
  Value exponent =
      integral<arith::SubIOp>(bits(shifted), bits(constant(magic)));
  Value half = integral<arith::ShRSIOp>(exponent, integer(1));
  Value rest = integral<arith::SubIOp>(exponent, half);
  auto power = [&](Value k) {
    return asFloat(integral<arith::ShLIOp>(
        integral<arith::AddIOp>(k, integer(127)), integer(23)));
  };
  return mul(mul(y, power(half)), power(rest));
}

/// x + x^3 Q(x^2) near 0; elsewhere 1 - 2 / (exp(2 |x|) + 1).
Value Emitter::tanh(Value x) {
  Value magnitude = abs(x);
  Value square = mul(x, x);
  // (tanh(sqrt z) / sqrt z - 1) / z
  Value q = polynomial(square, {-0.333333284f, 0.133327188f, -0.0538432632f,
                                0.0209613291f, -0.00604516510f});
  Value small = add(mul(mul(square, x), q), x);
  Value e = exp(add(magnitude, magnitude));
  Value large =
      sub(constant(1.0f), div(constant(2.0f), add(e, constant(1.0f))));
  return select(less(magnitude, 0.625f), small, copySign(large, x));
}

/// x + x R(x^2) near 0; elsewhere 1 - exp(S(|x|)), S = log erfc.
Value Emitter::erf(Value x) {
  Value magnitude = abs(x);
  // erf(sqrt z) / sqrt z - 1
  Value r = polynomial(mul(x, x), {0.128379166f, -0.376126267f, 0.112835947f,
                                   -0.0268542120f, 0.00518908742f,
                                   -0.000801686429f, 7.87587506e-5f});
  Value small = add(mul(x, r), x);
  // Beyond 4 the result rounds to 1.
  Value t = select(greater(magnitude, 4.0f), constant(4.0f), magnitude);
  Value s = polynomial(t, {0.000312931635f, -1.13020327f, -0.631879642f,
                           -0.110027377f, 0.0263897531f, -0.00474800714f,
                           0.000594211198f, -4.57356956e-5f, 1.62010623e-6f});
  Value large = sub(constant(1.0f), exp(s));
  return select(less(magnitude, 1.0f), small, copySign(large, x));
}

/// base^exponent as products, for small integer exponents.
Value power(OpBuilder &builder, Location loc, Value base, int64_t exponent) {
  Value result;
  for (uint64_t rest = std::abs(exponent); rest; rest >>= 1) {
    if (rest & 1)
      result =
          result ? arith::MulFOp::create(builder, loc, result, base).getResult()
                 : base;
    if (rest > 1)
      base = arith::MulFOp::create(builder, loc, base, base);
  }
  Value one = arith::ConstantOp::create(
      builder, loc, builder.getFloatAttr(base.getType(), 1.0));
  if (!result)
    return one;
  return exponent < 0
             ? arith::DivFOp::create(builder, loc, one, result).getResult()
             : result;
}

/// The products or root that stand for a power with a constant exponent.
Value expandPower(Operation *op) {
  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value base = op->getOperand(0);
  APInt integral;
  if (isa<math::FPowIOp>(op)) {
    if (!matchPattern(op->getOperand(1), m_ConstantInt(&integral)) ||
        std::abs(integral.getSExtValue()) > 16)
      return {};
    return power(builder, loc, base, integral.getSExtValue());
  }
  APFloat exponent(0.0f);
  if (!matchPattern(op->getOperand(1), m_ConstantFloat(&exponent)))
    return {};
  double value = exponent.convertToDouble();
  if (value == 0.5)
    return math::SqrtOp::create(builder, loc, base);
  if (value == std::trunc(value) && std::abs(value) <= 16)
    return power(builder, loc, base, static_cast<int64_t>(value));
  return {};
}

Value expand(Operation *op) {
  if (isa<math::FPowIOp, math::PowFOp>(op))
    return expandPower(op);
  if (op->getNumResults() != 1 || !op->getResult(0).getType().isF32())
    return {};
  Emitter emitter(op);
  if (isa<math::ExpOp>(op))
    return emitter.exp(op->getOperand(0));
  if (isa<math::TanhOp>(op))
    return emitter.tanh(op->getOperand(0));
  if (isa<math::ErfOp>(op))
    return emitter.erf(op->getOperand(0));
  return {};
}

struct ExpandMath : public impl::ExpandMathBase<ExpandMath> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (!isa<math::MathDialect>(op->getDialect()))
        return;
      if (Value value = expand(op)) {
        op->getResult(0).replaceAllUsesWith(value);
        op->erase();
      }
    });
  }
};
} // namespace
} // namespace piper
