// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- UpdateRules.h - optimizer formulas -----------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_UPDATERULES_H
#define PIPER_PASSES_PLAN_UPDATERULES_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace piper {

/// Numbers of an optimizer: runtime scalars (given) and constants of `config`,
/// both by name, as values of the parameters' type. A scalar hides a constant
/// of the same name.
class RuleNumbers {
public:
  RuleNumbers(OptimizerOp optimizer, mlir::Type type,
              llvm::ArrayRef<mlir::Value> scalars);

  /// The number, or null where the optimizer has none of that name.
  mlir::Value get(mlir::ImplicitLocOpBuilder &builder, llvm::StringRef name);
  /// A constant of `config`.
  std::optional<double> getConfig(llvm::StringRef name) const;
  bool getFlag(llvm::StringRef name) const;

  OptimizerOp optimizer;

private:
  mlir::Type type;
  llvm::StringMap<mlir::Value> scalars;
};

/// The elements of one update.
struct UpdateElements {
  mlir::Value parameter;
  mlir::Value gradient; // already divided by the weight
  /// In the order of the optimizer's slots; replaced by the new values.
  llvm::SmallVector<mlir::Value> slots;
};

/// Emits the formula of the optimizer's rule for one element, in the order of
/// operations of torch.optim's single-tensor path, and returns the new
/// parameter. Diagnoses an optimizer that lacks what its rule needs.
///
/// sgd: "lr", optionally "weight_decay"; with slot "momentum_buffer":
/// "momentum",
///   optionally "dampening" or "one_minus_dampening", flag "nesterov"; where
///   "first_step" is not 0 the buffer is started with the gradient.
/// adam, adamw: "step_size" = lr / (1 - beta1^t), "bias_correction2_sqrt" =
///   sqrt(1 - beta2^t), "beta1", "beta2", "eps"; adam: optionally
///   "weight_decay"; adamw: "decay" = 1 - lr * weight_decay; slots "exp_avg",
///   "exp_avg_sq" and, for amsgrad, "max_exp_avg_sq".
/// All: flag "maximize".
mlir::FailureOr<mlir::Value> emitUpdate(mlir::ImplicitLocOpBuilder &builder,
                                        RuleNumbers &numbers,
                                        UpdateElements &elements);

} // namespace piper

#endif // PIPER_PASSES_PLAN_UPDATERULES_H
