// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ForwardResults.cpp - results computed where they are wanted --------===//
//
// Bufferization could do this by itself if it saw the destinations as tensors,
// but it does not order writes to a destination memref after reads of a tensor
// that took over its memory. Here the destination is still untouched except
// for the copy, so taking it in place of the allocation is always right.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_FORWARDRESULTS
#include "passes/Passes.h.inc"

namespace {
struct ForwardResults : public impl::ForwardResultsBase<ForwardResults> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    auto inputs = function->getAttrOfType<IntegerAttr>(kInputsAttr);
    if (!inputs || function.isDeclaration())
      return;
    SmallVector<memref::CopyOp> copies(
        function.getBody().front().getOps<memref::CopyOp>());
    for (memref::CopyOp copy : copies) {
      auto result = dyn_cast<BlockArgument>(baseOf(copy.getTarget()));
      if (result && result.getArgNumber() >= inputs.getInt() &&
          taken.insert(result).second)
        forward(function, copy);
    }
  }

  void forward(func::FuncOp function, memref::CopyOp copy) {
    // Reshapes of the source are undone on the destination.
    SmallVector<Operation *> reshapes;
    Value source = copy.getSource();
    while (isa_and_nonnull<memref::ExpandShapeOp, memref::CollapseShapeOp>(
        source.getDefiningOp())) {
      reshapes.push_back(source.getDefiningOp());
      source = source.getDefiningOp()->getOperand(0);
    }
    auto alloc = source.getDefiningOp<memref::AllocOp>();
    if (!alloc || alloc->getBlock() != copy->getBlock() ||
        copy.getSource().getType() != copy.getTarget().getType())
      return;
    Value target = copy.getTarget();
    OpBuilder builder(copy);
    if (target.getDefiningOp())
      builder.setInsertionPointAfterValue(target);
    else
      builder.setInsertionPointToStart(&function.getBody().front());
    for (Operation *reshape : reshapes) {
      auto type = cast<MemRefType>(reshape->getOperand(0).getType());
      if (auto expand = dyn_cast<memref::ExpandShapeOp>(reshape))
        target = memref::CollapseShapeOp::create(
            builder, copy.getLoc(), target, expand.getReassociationIndices());
      else
        target = memref::ExpandShapeOp::create(
            builder, copy.getLoc(), type, target,
            cast<memref::CollapseShapeOp>(reshape).getReassociationIndices());
    }
    if (target.getType() != alloc.getType())
      return;
    alloc.replaceAllUsesWith(target);
    alloc.erase();
    copy.erase();
  }

  DenseSet<Value> taken;
};
} // namespace
} // namespace piper
