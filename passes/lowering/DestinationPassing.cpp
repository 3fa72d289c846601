// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DestinationPassing.cpp - tensors at the boundary become memrefs ----===//

#include "dialect/PiperDialect.h"
#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_DESTINATIONPASSING
#include "passes/Passes.h.inc"

namespace {
MemRefType memrefOf(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  return MemRefType::get(type.getShape(), type.getElementType());
}

struct DestinationPassing
    : public impl::DestinationPassingBase<DestinationPassing> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration())
      return;
    Block &body = function.getBody().front();
    auto terminator = cast<func::ReturnOp>(body.getTerminator());
    OpBuilder builder(&body, body.begin());
    int64_t inputs = body.getNumArguments();
    for (BlockArgument argument : body.getArguments())
      if (isa<RankedTensorType>(argument.getType()))
        convertInput(
            builder, argument,
            bool(function.getArgAttr(argument.getArgNumber(), kDonatedAttr)));
    OpBuilder atReturn(terminator);
    for (Value result : terminator.getOperands())
      convertResult(builder, atReturn, body, result);
    int64_t results = terminator.getNumOperands();
    terminator.getOperandsMutable().clear();

    function.removeArgAttrsAttr();
    function.removeResAttrsAttr();
    function.setFunctionType(
        builder.getFunctionType(body.getArgumentTypes(), {}));
    function->setAttr(kInputsAttr, builder.getI64IntegerAttr(inputs));
    function->setAttr(kResultsAttr, builder.getI64IntegerAttr(results));
  }

  static void convertInput(OpBuilder &builder, BlockArgument argument,
                           bool isDonated) {
    Type tensor = argument.getType();
    argument.setType(memrefOf(tensor));
    // Where it is not writable, bufferization copies instead of updating it.
    auto read = bufferization::ToTensorOp::create(
        builder, argument.getLoc(), tensor, argument, /*restrict=*/true,
        /*writable=*/isDonated);
    argument.replaceAllUsesExcept(read, read);
  }

  /// The destination takes over the reshapes that the value went through, so
  /// that the op before them can write to it directly.
  void convertResult(OpBuilder &builder, OpBuilder &atReturn, Block &body,
                     Value value) {
    Location loc = value.getLoc();
    Value destination = body.addArgument(memrefOf(value.getType()), loc);
    while (Operation *op = value.getDefiningOp()) {
      if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
        destination = memref::CollapseShapeOp::create(
            builder, loc, destination, expand.getReassociationIndices());
      } else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
        destination = memref::ExpandShapeOp::create(
            builder, loc, memrefOf(collapse.getSrcType()), destination,
            collapse.getReassociationIndices());
      } else {
        break;
      }
      value = op->getOperand(0);
    }
    auto write = bufferization::MaterializeInDestinationOp::create(
        atReturn, loc, value, destination);
    write.setWritable(true);
    write.setRestrict(true);
  }
};
} // namespace
} // namespace piper
