// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- MaterializeUpdates.cpp - functions of optimizer steps --------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/Passes.h"
#include "passes/plan/Sizes.h"
#include "passes/plan/UpdateRules.h"

namespace piper {
#define GEN_PASS_DEF_MATERIALIZEUPDATES
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
/// Builds `@update_...` for one kernel that Partition has announced.
class UpdateBuilder {
public:
  UpdateBuilder(KernelOp kernel, OptimizerOp optimizer, Type type)
      : kernel(kernel), optimizer(optimizer), type(type),
        builder(kernel.getLoc(), kernel.getContext()) {}

  LogicalResult build();

private:
  Value load(Value memory, int64_t index);
  Value toElement(Value number);
  LogicalResult buildElement(OpBuilder &nested, Location loc, ValueRange args,
                             ArrayRef<Value> scalars, Value inverse,
                             Value isActive);

  KernelOp kernel;
  OptimizerOp optimizer;
  Type type;
  ImplicitLocOpBuilder builder;
};
} // namespace

Value UpdateBuilder::load(Value memory, int64_t index) {
  Value at = arith::ConstantIndexOp::create(builder, index);
  return memref::LoadOp::create(builder, memory, at);
}

/// Scalars are f32, whatever the parameters are.
Value UpdateBuilder::toElement(Value number) {
  return type.isF32() ? number
                      : arith::ExtFOp::create(builder, type, number).getOut();
}

/// A step whose weight is 0 must not let NaN (0 * 1/0) into the state, so old
/// values are selected, not computed.
LogicalResult UpdateBuilder::buildElement(OpBuilder &nested, Location loc,
                                          ValueRange args,
                                          ArrayRef<Value> scalars,
                                          Value inverse, Value isActive) {
  ImplicitLocOpBuilder inside(loc, nested);
  UpdateElements elements;
  elements.gradient = arith::MulFOp::create(inside, args[0], inverse);
  elements.parameter = args[1];
  elements.slots = llvm::to_vector(args.drop_front(2));
  RuleNumbers numbers(optimizer, type, scalars);
  FailureOr<Value> next = emitUpdate(inside, numbers, elements);
  if (failed(next))
    return failure();
  SmallVector<Value> results{*next};
  llvm::append_range(results, elements.slots);
  for (auto [result, old] : llvm::zip(results, args.drop_front()))
    result = arith::SelectOp::create(inside, isActive, result, old);
  linalg::YieldOp::create(inside, results);
  return success();
}

LogicalResult UpdateBuilder::build() {
  if (!type.isF32() && !type.isF64())
    return optimizer.emitOpError("expected parameters of type f32 or f64, got ")
           << type;
  int64_t numSlots = optimizer.getSlots().size();
  int64_t numScalars = optimizer.getScalars().size();
  int64_t elements = kernel.getPointerBytes()[0] / getElementBytes(type);
  auto vector = MemRefType::get({elements}, type);
  SmallVector<Type> arguments(2 + numSlots, vector);
  arguments.push_back(MemRefType::get({numScalars}, builder.getF32Type()));
  arguments.push_back(MemRefType::get({2}, builder.getF32Type()));

  builder.setInsertionPoint(kernel);
  auto function = func::FuncOp::create(builder, kernel.getName(),
                                       builder.getFunctionType(arguments, {}));
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  auto args = entry->getArguments();
  Value scalarMemory = args[2 + numSlots], scale = args[3 + numSlots];
  SmallVector<Value> scalars;
  for (int64_t i = 0; i < numScalars; ++i)
    scalars.push_back(toElement(load(scalarMemory, i)));
  Value weight = toElement(load(scale, 1));
  Value zero =
      arith::ConstantOp::create(builder, builder.getFloatAttr(type, 0.0));
  Value one =
      arith::ConstantOp::create(builder, builder.getFloatAttr(type, 1.0));
  Value isActive =
      arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE, weight, zero);
  Value inverse = arith::DivFOp::create(builder, one, weight);

  SmallVector<Value> outs{args[0]};
  llvm::append_range(outs, args.slice(2, numSlots));
  SmallVector<AffineMap> maps(2 + numSlots, builder.getMultiDimIdentityMap(1));
  LogicalResult built = success();
  linalg::GenericOp::create(
      builder, ValueRange{args[1]}, outs, maps,
      ArrayRef<utils::IteratorType>{utils::IteratorType::parallel},
      [&](OpBuilder &nested, Location loc, ValueRange elements) {
        built = buildElement(nested, loc, elements, scalars, inverse, isActive);
      });
  func::ReturnOp::create(builder);
  if (failed(built))
    function.erase();
  return built;
}

namespace {
struct MaterializeUpdates
    : public piper::impl::MaterializeUpdatesBase<MaterializeUpdates> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    for (auto kernel : llvm::to_vector(module.getOps<KernelOp>())) {
      auto name = kernel->getAttrOfType<FlatSymbolRefAttr>("optimizer");
      auto type = kernel->getAttrOfType<TypeAttr>("type");
      if (!name || !type)
        continue;
      auto optimizer = symbols.lookup<OptimizerOp>(name.getAttr());
      if (!optimizer) {
        kernel.emitOpError("expected an optimizer, got ") << name;
        return signalPassFailure();
      }
      if (failed(UpdateBuilder(kernel, optimizer, type.getValue()).build()))
        return signalPassFailure();
      kernel->removeAttr("optimizer");
      kernel->removeAttr("type");
    }
  }
};
} // namespace
