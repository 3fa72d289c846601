// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- WidenBooleans.cpp - one byte per i1 in memory ----------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_WIDENBOOLEANS
#include "passes/Passes.h.inc"

namespace {
struct WidenBooleans : public impl::WidenBooleansBase<WidenBooleans> {
  void runOnOperation() override {
    WalkResult walk = getOperation().walk([&](Operation *op) {
      if (auto load = dyn_cast<memref::LoadOp>(op))
        widenLoad(load);
      else if (auto store = dyn_cast<memref::StoreOp>(op))
        widenStore(store);
      else if (auto global = dyn_cast<memref::GlobalOp>(op))
        return WalkResult(widenGlobal(global));
      else
        for (Value result : op->getResults())
          result.setType(widen(result.getType()));
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (BlockArgument argument : block.getArguments())
            argument.setType(widen(argument.getType()));
      if (auto function = dyn_cast<func::FuncOp>(op))
        widenFunction(function);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }

  Type widen(Type type) {
    auto memref = dyn_cast<MemRefType>(type);
    if (!memref || !memref.getElementType().isInteger(1))
      return type;
    return MemRefType::Builder(memref).setElementType(
        IntegerType::get(&getContext(), 8));
  }

  void widenLoad(memref::LoadOp load) {
    Value result = load.getResult();
    if (!result.getType().isInteger(1))
      return;
    OpBuilder builder(&getContext());
    builder.setInsertionPointAfter(load);
    Type type = result.getType();
    result.setType(builder.getI8Type());
    auto narrow = arith::TruncIOp::create(builder, load.getLoc(), type, result);
    result.replaceAllUsesExcept(narrow, narrow);
  }

  void widenStore(memref::StoreOp store) {
    if (!store.getValueToStore().getType().isInteger(1))
      return;
    OpBuilder builder(store);
    store.getValueMutable().assign(arith::ExtUIOp::create(
        builder, store.getLoc(), builder.getI8Type(), store.getValueToStore()));
  }

  void widenFunction(func::FuncOp function) {
    SmallVector<Type> inputs;
    for (Type type : function.getArgumentTypes())
      inputs.push_back(widen(type));
    function.setFunctionType(FunctionType::get(
        &getContext(), inputs, function.getFunctionType().getResults()));
  }

  LogicalResult widenGlobal(memref::GlobalOp global) {
    Type type = widen(global.getType());
    if (type == global.getType())
      return success();
    global.setType(cast<MemRefType>(type));
    std::optional<Attribute> value = global.getInitialValue();
    if (!value || isa<UnitAttr>(*value))
      return success();
    auto dense = dyn_cast<DenseIntElementsAttr>(*value);
    if (!dense)
      return global.emitError("expected dense values of i1, got ") << *value;
    global.setInitialValueAttr(
        dense.mapValues(IntegerType::get(&getContext(), 8),
                        [](const APInt &bit) { return bit.zext(8); }));
    return success();
  }
};
} // namespace
} // namespace piper
