// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- UpdateRules.cpp - optimizer formulas -------------------------------===//
//
// After torch/optim/sgd.py (_single_tensor_sgd) and torch/optim/adam.py
// (_single_tensor_adam); lerp, addcmul and addcdiv round as ATen's CPU kernels.
//
//===----------------------------------------------------------------------===//

#include "passes/plan/UpdateRules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace piper;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

RuleNumbers::RuleNumbers(OptimizerOp optimizer, Type type,
                         ArrayRef<Value> values)
    : optimizer(optimizer), type(type) {
  for (auto [name, value] : llvm::zip(optimizer.getScalars(), values))
    scalars[cast<StringAttr>(name).getValue()] = value;
}

std::optional<double> RuleNumbers::getConfig(StringRef name) const {
  Attribute found = OptimizerOp(optimizer).getConfig().get(name);
  if (auto number = dyn_cast_or_null<FloatAttr>(found))
    return number.getValueAsDouble();
  if (auto number = dyn_cast_or_null<IntegerAttr>(found))
    return number.getValue().isZero() ? 0.0 : double(number.getInt());
  return std::nullopt;
}

bool RuleNumbers::getFlag(StringRef name) const {
  Attribute found = OptimizerOp(optimizer).getConfig().get(name);
  if (auto flag = dyn_cast_or_null<IntegerAttr>(found))
    return !flag.getValue().isZero();
  return isa_and_nonnull<UnitAttr>(found);
}

Value RuleNumbers::get(ImplicitLocOpBuilder &builder, StringRef name) {
  if (Value scalar = scalars.lookup(name))
    return scalar;
  if (std::optional<double> number = getConfig(name))
    return arith::ConstantOp::create(builder,
                                     builder.getFloatAttr(type, *number));
  return {};
}

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

namespace {
/// Short names for arithmetic.
class Formula {
public:
  Formula(ImplicitLocOpBuilder &builder, RuleNumbers &numbers,
          UpdateElements &elements)
      : builder(builder), numbers(numbers), elements(elements),
        type(elements.parameter.getType()) {}

  FailureOr<Value> sgd();
  FailureOr<Value> adam(bool isDecoupled);

private:
  Value add(Value a, Value b) { return arith::AddFOp::create(builder, a, b); }
  Value sub(Value a, Value b) { return arith::SubFOp::create(builder, a, b); }
  Value mul(Value a, Value b) { return arith::MulFOp::create(builder, a, b); }
  Value div(Value a, Value b) { return arith::DivFOp::create(builder, a, b); }
  Value neg(Value a) { return arith::NegFOp::create(builder, a); }
  Value constant(double number) {
    return arith::ConstantOp::create(builder,
                                     builder.getFloatAttr(type, number));
  }
  Value lerp(Value from, Value to, double weight);

  Value getGradient() {
    return numbers.getFlag("maximize") ? neg(elements.gradient)
                                       : elements.gradient;
  }
  /// The number, or null and a diagnostic.
  Value require(StringRef name);
  Value *getSlot(StringRef name);
  Value *requireSlot(StringRef name);

  ImplicitLocOpBuilder &builder;
  RuleNumbers &numbers;
  UpdateElements &elements;
  Type type;
};
} // namespace

Value Formula::require(StringRef name) {
  Value number = numbers.get(builder, name);
  if (!number)
    numbers.optimizer.emitOpError("expected ")
        << name << " among scalars or config of the rule "
        << numbers.optimizer.getRule();
  return number;
}

Value *Formula::getSlot(StringRef name) {
  for (auto [slot, value] :
       llvm::zip(numbers.optimizer.getSlots(), elements.slots))
    if (cast<StringAttr>(slot).getValue() == name)
      return &value;
  return nullptr;
}

Value *Formula::requireSlot(StringRef name) {
  Value *slot = getSlot(name);
  if (!slot)
    numbers.optimizer.emitOpError("expected the slot ")
        << name << " of the rule " << numbers.optimizer.getRule();
  return slot;
}

/// ATen picks the form that is exact at the nearer end.
Value Formula::lerp(Value from, Value to, double weight) {
  Value distance = sub(to, from);
  if (weight < 0.5)
    return add(from, mul(constant(weight), distance));
  return sub(to, mul(distance, constant(1 - weight)));
}

FailureOr<Value> Formula::sgd() {
  Value parameter = elements.parameter;
  Value gradient = getGradient();
  Value rate = require("lr");
  if (!rate)
    return failure();
  if (Value decay = numbers.get(builder, "weight_decay"))
    gradient = add(gradient, mul(decay, parameter));
  if (Value *buffer = getSlot("momentum_buffer")) {
    Value momentum = require("momentum");
    if (!momentum)
      return failure();
    Value added = gradient;
    if (Value share = numbers.get(builder, "one_minus_dampening"))
      added = mul(share, gradient);
    else if (std::optional<double> dampening = numbers.getConfig("dampening"))
      added =
          *dampening == 0 ? gradient : mul(constant(1 - *dampening), gradient);
    else if (Value dampening = numbers.get(builder, "dampening"))
      added = mul(sub(constant(1), dampening), gradient);
    Value next = add(mul(*buffer, momentum), added);
    if (Value first = numbers.get(builder, "first_step")) {
      Value isFirst = arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE,
                                            first, constant(0));
      next = arith::SelectOp::create(builder, isFirst, gradient, next);
    }
    *buffer = next;
    gradient =
        numbers.getFlag("nesterov") ? add(gradient, mul(momentum, next)) : next;
  }
  return add(parameter, mul(neg(rate), gradient));
}

FailureOr<Value> Formula::adam(bool isDecoupled) {
  Value parameter = elements.parameter;
  Value gradient = getGradient();
  Value stepSize = require("step_size");
  Value correction = require("bias_correction2_sqrt");
  Value eps = require("eps");
  std::optional<double> beta1 = numbers.getConfig("beta1");
  std::optional<double> beta2 = numbers.getConfig("beta2");
  Value *average = requireSlot("exp_avg");
  Value *square = requireSlot("exp_avg_sq");
  if (!stepSize || !correction || !eps || !average || !square)
    return failure();
  if (!beta1 || !beta2) {
    numbers.optimizer.emitOpError("expected beta1 and beta2 in config");
    return failure();
  }
  if (isDecoupled) {
    Value decay = require("decay");
    if (!decay)
      return failure();
    parameter = mul(parameter, decay);
  } else if (Value decay = numbers.get(builder, "weight_decay")) {
    gradient = add(gradient, mul(decay, parameter));
  }
  *average = lerp(*average, gradient, 1 - *beta1);
  *square = add(mul(*square, constant(*beta2)),
                mul(mul(constant(1 - *beta2), gradient), gradient));
  Value largest = *square;
  if (Value *maximum = getSlot("max_exp_avg_sq")) {
    // NaN propagates, as in torch.maximum.
    *maximum = arith::MaximumFOp::create(builder, *maximum, *square);
    largest = *maximum;
  }
  Value root = math::SqrtOp::create(builder, largest);
  Value denominator = add(div(root, correction), eps);
  return add(parameter, div(mul(neg(stepSize), *average), denominator));
}

FailureOr<Value> piper::emitUpdate(ImplicitLocOpBuilder &builder,
                                   RuleNumbers &numbers,
                                   UpdateElements &elements) {
  Formula formula(builder, numbers, elements);
  StringRef rule = numbers.optimizer.getRule();
  if (rule == "sgd")
    return formula.sgd();
  return formula.adam(/*isDecoupled=*/rule == "adamw");
}
