// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GuardIndices.cpp - indirect reads stay inside their tensor ---------===//

#include "passes/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_GUARDINDICES
#include "passes/Passes.h.inc"

namespace {
Value constantIndex(OpBuilder &builder, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(builder, loc, value);
}

/// Ops of the body of `generic` that the asserts' conditions need, or nothing
/// where a condition reads an output or something that is not pure.
std::optional<SetVector<Operation *>>
conditionSlice(linalg::GenericOp generic, ArrayRef<cf::AssertOp> asserts) {
  SetVector<Operation *> slice;
  Block *body = generic.getBody();
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitBlockArguments = true;
  options.filter = [&](Operation *op) { return op->getBlock() == body; };
  for (cf::AssertOp check : asserts)
    if (check.getArg().getParentBlock() == body &&
        check.getArg().getDefiningOp() &&
        failed(getBackwardSlice(check.getArg(), &slice, options)))
      return std::nullopt;
  for (Operation *op : slice) {
    if (!isPure(op) || op->getNumRegions() != 0)
      return std::nullopt;
    for (Value operand : op->getOperands())
      if (auto argument = dyn_cast<BlockArgument>(operand))
        if (argument.getOwner() == body &&
            argument.getArgNumber() >= generic.getNumDpsInputs())
          return std::nullopt;
  }
  return slice;
}

/// Whether `value` is computed from an integer element of an operand: from
/// data, not from the position alone.
bool readsInteger(Value value, Block *body) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getOwner() == body && argument.getType().isInteger();
  Operation *producer = value.getDefiningOp();
  if (!producer || producer->getBlock() != body)
    return false;
  if (isa<tensor::ExtractOp>(producer))
    return value.getType().isInteger();
  return llvm::any_of(producer->getOperands(), [&](Value operand) {
    return readsInteger(operand, body);
  });
}

/// Whether an assert of the body compares `index` with its bounds.
bool isAsserted(Value index) {
  auto isCheck = [](Operation *user) {
    return isa<arith::CmpIOp>(user) &&
           llvm::any_of(user->getUsers(), [](Operation *next) {
             return isa<cf::AssertOp>(next);
           });
  };
  if (llvm::any_of(index.getUsers(), isCheck))
    return true;
  auto cast = index.getDefiningOp<arith::IndexCastOp>();
  return cast && llvm::any_of(cast.getIn().getUsers(), isCheck);
}

struct GuardIndices : public impl::GuardIndicesBase<GuardIndices> {
  void runOnOperation() override {
    dropDivisorChecks();
    SmallVector<tensor::ExtractOp> lookups;
    getOperation().walk([&](tensor::ExtractOp op) { lookups.push_back(op); });
    for (tensor::ExtractOp lookup : lookups)
      addAsserts(lookup);
    SmallVector<linalg::GenericOp> generics;
    SmallVector<tensor::ExtractOp> extracts;
    getOperation().walk([&](Operation *op) {
      if (auto generic = dyn_cast<linalg::GenericOp>(op))
        generics.push_back(generic);
      if (auto extract = dyn_cast<tensor::ExtractOp>(op))
        extracts.push_back(extract);
    });
    for (linalg::GenericOp generic : generics)
      hoistAsserts(generic);
    for (tensor::ExtractOp extract : extracts)
      clampIndices(extract);
  }

  /// torch-mlir checks the indices of embedding and gather, but not those of
  /// index and index_select, which PyTorch refuses just the same.
  void addAsserts(tensor::ExtractOp lookup) {
    auto generic = dyn_cast<linalg::GenericOp>(lookup->getParentOp());
    RankedTensorType type = lookup.getTensor().getType();
    if (!generic)
      return;
    OpBuilder builder(lookup);
    Location loc = lookup.getLoc();
    for (auto [dim, index] : llvm::enumerate(lookup.getIndices())) {
      if (type.isDynamicDim(dim) || isAsserted(index) ||
          !readsInteger(index, generic.getBody()))
        continue;
      Value size = constantIndex(builder, loc, type.getDimSize(dim));
      Value zero = constantIndex(builder, loc, 0);
      Value below = arith::CmpIOp::create(
          builder, loc, arith::CmpIPredicate::slt, index, size);
      cf::AssertOp::create(builder, loc, below,
                           "index must be smaller than dim size");
      Value above = arith::CmpIOp::create(
          builder, loc, arith::CmpIPredicate::sge, index, zero);
      cf::AssertOp::create(builder, loc, above,
                           "index must be larger or equal to 0");
    }
  }

  /// torch-mlir also asserts that the operand of a reciprocal is not zero,
  /// where PyTorch gives infinity.
  void dropDivisorChecks() {
    SmallVector<cf::AssertOp> checks;
    getOperation().walk([&](cf::AssertOp check) {
      if (check.getArg().getDefiningOp<arith::CmpFOp>())
        checks.push_back(check);
    });
    for (cf::AssertOp check : checks)
      check.erase();
  }

  void hoistAsserts(linalg::GenericOp generic) {
    SmallVector<cf::AssertOp> asserts(
        generic.getBody()->getOps<cf::AssertOp>());
    if (asserts.empty() || !generic.hasPureTensorSemantics())
      return;
    auto slice = conditionSlice(generic, asserts);
    SmallVector<int64_t> ranges = generic.getStaticLoopRanges();
    if (!slice || llvm::any_of(ranges, ShapedType::isDynamic))
      return;

    // Operands and loops that the conditions depend on.
    llvm::SmallBitVector loops(ranges.size());
    SetVector<unsigned> inputs;
    auto visit = [&](Value value) {
      if (auto argument = dyn_cast<BlockArgument>(value))
        if (argument.getOwner() == generic.getBody())
          inputs.insert(argument.getArgNumber());
    };
    for (Operation *op : *slice) {
      llvm::for_each(op->getOperands(), visit);
      if (auto index = dyn_cast<linalg::IndexOp>(op))
        loops.set(index.getDim());
    }
    for (cf::AssertOp check : asserts)
      visit(check.getArg());
    SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
    for (unsigned input : inputs) {
      for (AffineExpr expr : maps[input].getResults()) {
        if (isa<AffineConstantExpr>(expr))
          continue;
        auto dim = dyn_cast<AffineDimExpr>(expr);
        if (!dim)
          return;
        loops.set(dim.getPosition());
      }
    }
    buildChecks(generic, asserts, *slice, inputs, loops, ranges);
    for (cf::AssertOp check : asserts)
      check.erase();
  }

  void buildChecks(linalg::GenericOp generic, ArrayRef<cf::AssertOp> asserts,
                   const SetVector<Operation *> &slice,
                   const SetVector<unsigned> &inputs,
                   const llvm::SmallBitVector &loops,
                   ArrayRef<int64_t> ranges) {
    Location loc = generic.getLoc();
    OpBuilder builder(generic);
    Value zero = constantIndex(builder, loc, 0);
    Value one = constantIndex(builder, loc, 1);
    SmallVector<Value> ivs(ranges.size(), zero);
    for (unsigned loop : loops.set_bits()) {
      Value bound = constantIndex(builder, loc, ranges[loop]);
      auto nest = scf::ForOp::create(builder, loc, zero, bound, one);
      ivs[loop] = nest.getInductionVar();
      builder.setInsertionPointToStart(nest.getBody());
    }
    IRMapping mapping;
    SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
    for (unsigned input : inputs) {
      SmallVector<Value> position;
      for (AffineExpr expr : maps[input].getResults()) {
        auto dim = dyn_cast<AffineDimExpr>(expr);
        position.push_back(
            dim ? ivs[dim.getPosition()]
                : constantIndex(builder, loc,
                                cast<AffineConstantExpr>(expr).getValue()));
      }
      Value element = generic.getInputs()[input];
      if (isa<RankedTensorType>(element.getType()))
        element = tensor::ExtractOp::create(builder, loc, element, position);
      mapping.map(generic.getBody()->getArgument(input), element);
    }
    for (Operation &op : *generic.getBody()) {
      if (auto check = dyn_cast<cf::AssertOp>(op)) {
        builder.clone(op, mapping);
      } else if (slice.contains(&op)) {
        if (auto index = dyn_cast<linalg::IndexOp>(op))
          mapping.map(index.getResult(), ivs[index.getDim()]);
        else
          builder.clone(op, mapping);
      }
    }
  }

  /// An index is safe as it stands where it is a constant or a loop's own.
  void clampIndices(tensor::ExtractOp extract) {
    OpBuilder builder(extract);
    Location loc = extract.getLoc();
    RankedTensorType type = extract.getTensor().getType();
    for (OpOperand &index : extract.getIndicesMutable()) {
      int64_t dim = index.getOperandNumber() - 1;
      Operation *producer = index.get().getDefiningOp();
      if (type.isDynamicDim(dim) || type.getDimSize(dim) == 0 ||
          isInside(index.get(), producer, type.getDimSize(dim)))
        continue;
      Value last = constantIndex(builder, loc, type.getDimSize(dim) - 1);
      Value clamped = arith::MinSIOp::create(builder, loc, index.get(), last);
      index.set(arith::MaxSIOp::create(builder, loc, clamped,
                                       constantIndex(builder, loc, 0)));
    }
  }

  bool isInside(Value index, Operation *producer, int64_t size) {
    APInt constant;
    if (matchPattern(index, m_ConstantInt(&constant)))
      return constant.sge(0) && constant.slt(size);
    if (auto loop = dyn_cast_or_null<linalg::IndexOp>(producer)) {
      auto owner = dyn_cast<linalg::LinalgOp>(loop->getParentOp());
      if (!owner)
        return false;
      int64_t range = owner.getStaticLoopRanges()[loop.getDim()];
      return !ShapedType::isDynamic(range) && range <= size;
    }
    return false;
  }
};
} // namespace
} // namespace piper
