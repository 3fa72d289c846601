// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ComputeLate.cpp - values made again, where they are used -----------===//
//
// A backward makes values of its forward again from its arguments, all at the
// top. Right before their first use they are shorter alive, and stand beside
// the loops that read them, with which they may share rows.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_COMPUTELATE
#include "passes/Passes.h.inc"

namespace {
struct ComputeLate : public impl::ComputeLateBase<ComputeLate> {
  void runOnOperation() override {
    if (getOperation().isDeclaration())
      return;
    Block &body = getOperation().getBody().front();
    SmallVector<Operation *> late;
    for (Operation &op : body)
      if (needsArgumentsOnly(op)) {
        known.insert(op.result_begin(), op.result_end());
        late.push_back(&op);
      }
    // Users first: where they go decides where their operands go.
    for (Operation *op : llvm::reverse(late))
      if (Operation *user = firstUser(*op, body))
        op->moveBefore(user);
  }

  bool needsArgumentsOnly(Operation &op) {
    if (!isa<linalg::GenericOp, linalg::FillOp, tensor::EmptyOp,
             tensor::ExpandShapeOp, tensor::CollapseShapeOp,
             tensor::ExtractSliceOp, tensor::InsertSliceOp>(op))
      return false;
    SetVector<Value> read(op.operand_begin(), op.operand_end());
    getUsedValuesDefinedAbove(op.getRegions(), read);
    return llvm::all_of(read, [&](Value value) {
      Operation *maker = value.getDefiningOp();
      return !maker || maker->hasTrait<OpTrait::ConstantLike>() ||
             known.contains(value);
    });
  }

  static Operation *firstUser(Operation &op, Block &body) {
    Operation *first = nullptr;
    for (Operation *user : op.getUsers()) {
      Operation *here = body.findAncestorOpInBlock(*user);
      if (!first || here->isBeforeInBlock(first))
        first = here;
    }
    return first;
  }

  DenseSet<Value> known;
};
} // namespace
} // namespace piper
