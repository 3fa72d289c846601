// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- OutlineKernels.cpp - each loop nest as a function ------------------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "passes/Passes.h.inc"

namespace {
/// Ops that are made again inside the function instead of being passed.
bool isRematerialized(Operation *op) {
  return op && (isViewOp(op) || isa<memref::GetGlobalOp>(op) ||
                op->hasTrait<OpTrait::ConstantLike>());
}

struct OutlineKernels : public impl::OutlineKernelsBase<OutlineKernels> {
  void runOnOperation() override {
    func::FuncOp kernel = findKernel(getOperation());
    if (!kernel)
      return;
    SmallVector<Operation *> nests;
    for (Operation &op : kernel.getBody().front())
      if (op.getNumRegions() != 0)
        nests.push_back(&op);
    for (Operation *nest : nests)
      outline(kernel, nest);
  }

  void outline(func::FuncOp kernel, Operation *nest) {
    SetVector<Value> arguments;
    SetVector<Operation *> rematerialized;
    collect(nest, arguments, rematerialized);

    OpBuilder builder(kernel);
    SmallVector<Type> types;
    for (Value argument : arguments)
      types.push_back(argument.getType());
    auto function = func::FuncOp::create(nest->getLoc(), "nest",
                                         builder.getFunctionType(types, {}));
    function.setPrivate();
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToStart(body);
    IRMapping mapping;
    for (auto [argument, parameter] :
         llvm::zip(arguments, body->getArguments())) {
      mapping.map(argument, parameter);
      if (isa<MemRefType>(argument.getType()))
        function.setArgAttr(parameter.getArgNumber(), "llvm.noalias",
                            builder.getUnitAttr());
    }
    for (Operation *op : rematerialized)
      builder.clone(*op, mapping);
    builder.clone(*nest, mapping);
    func::ReturnOp::create(builder, nest->getLoc());

    function = deduplicate(kernel, function);
    builder.setInsertionPoint(nest);
    func::CallOp::create(builder, nest->getLoc(), function,
                         arguments.getArrayRef());
    nest->erase();
  }

  /// What `nest` uses from outside: values to pass, and ops to make again in
  /// the order of their definition.
  void collect(Operation *nest, SetVector<Value> &arguments,
               SetVector<Operation *> &rematerialized) {
    SetVector<Value> captured;
    captured.insert(nest->operand_begin(), nest->operand_end());
    for (Region &region : nest->getRegions())
      getUsedValuesDefinedAbove(region, captured);
    std::function<void(Value)> visit = [&](Value value) {
      Operation *op = value.getDefiningOp();
      if (!isRematerialized(op)) {
        arguments.insert(value);
        return;
      }
      if (rematerialized.contains(op))
        return;
      for (Value operand : op->getOperands())
        visit(operand);
      rematerialized.insert(op);
    };
    for (Value value : captured)
      visit(value);
  }

  /// An earlier function with the same text, or this one under a new name.
  func::FuncOp deduplicate(func::FuncOp kernel, func::FuncOp function) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    function->print(stream, OpPrintingFlags().useLocalScope());
    auto [entry, isNew] = functions.try_emplace(text, function);
    if (!isNew) {
      function->erase();
      return entry->second;
    }
    function.setName(
        (kernel.getName() + ".nest" + Twine(functions.size() - 1)).str());
    OpBuilder(kernel).insert(function);
    return function;
  }

  llvm::StringMap<func::FuncOp> functions;
};
} // namespace
} // namespace piper
