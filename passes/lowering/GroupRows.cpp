// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GroupRows.cpp - one loop over rows for ops that share it -----------===//
//
// A row is then read and written while it is in cache, and a buffer that only
// one group uses shrinks to one row.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"
#include "passes/lowering/RowGroup.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_GROUPROWS
#include "passes/Passes.h.inc"

namespace {
/// Writes one group as a loop nest in front of its last op.
class GroupEmitter {
public:
  explicit GroupEmitter(const RowGroup &group)
      : group(group), builder(group.operations().back()),
        loc(group.operations().front()->getLoc()) {}

  void emit() {
    size_t count = group.extents().size();
    for (memref::AllocOp alloc : group.privateBuffers()) {
      MemRefType type = alloc.getType();
      rowBuffers[alloc.getResult()] = memref::AllocOp::create(
          builder, loc,
          MemRefType::get(type.getShape().drop_front(count),
                          type.getElementType()),
          alloc.getAlignmentAttr());
    }
    Value zero = index(0), one = index(1);
    for (int64_t extent : group.extents()) {
      auto loop = scf::ForOp::create(builder, loc, zero, index(extent), one);
      rows.push_back(loop.getInductionVar());
      builder.setInsertionPointToStart(loop.getBody());
    }
    for (size_t i = 0; i < group.operations().size(); ++i)
      emitOp(i);
    for (Operation *op : group.operations())
      op->erase();
    for (auto &entry : rowBuffers)
      eraseWithViews(entry.first);
  }

private:
  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(builder, loc, value);
  }

  void emitOp(size_t position) {
    auto op = cast<linalg::LinalgOp>(group.operations()[position]);
    size_t count = rows.size();
    SmallVector<Value> operands;
    SmallVector<AffineMap> maps;
    for (auto [operand, map, access] :
         llvm::zip(op->getOperands(), op.getIndexingMapsArray(),
                   group.accesses(position))) {
      bool isRow = access && access->isRow;
      operands.push_back(isRow ? rowOf(operand) : operand);
      SmallVector<AffineExpr> results;
      for (AffineExpr expr : map.getResults().drop_front(isRow ? count : 0))
        results.push_back(
            expr.shiftDims(map.getNumDims(), -static_cast<int>(count)));
      maps.push_back(AffineMap::get(map.getNumDims() - count, 0, results,
                                    builder.getContext()));
    }
    size_t inputs = op.getNumDpsInputs();
    ArrayRef<Value> all(operands);
    SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
    auto generic = linalg::GenericOp::create(
        builder, op.getLoc(), TypeRange(), all.take_front(inputs),
        all.drop_front(inputs), maps,
        ArrayRef<utils::IteratorType>(iterators).drop_front(count));
    generic.getRegion().takeBody(op->getRegion(0));
    generic.walk([&](linalg::IndexOp index) {
      if (index->getParentOp() != generic)
        return;
      if (index.getDim() >= count) {
        index.setDim(index.getDim() - count);
      } else {
        index.replaceAllUsesWith(rows[index.getDim()]);
        index.erase();
      }
    });
  }

  /// The part of `view` that belongs to the current row.
  Value rowOf(Value view) {
    Value &row = slices[view];
    if (row)
      return row;
    auto type = cast<MemRefType>(view.getType());
    size_t count = rows.size();
    ArrayRef<int64_t> shape = type.getShape().drop_front(count);
    auto buffer = rowBuffers.find(baseOf(view));
    if (buffer != rowBuffers.end()) {
      SmallVector<int64_t> strides;
      int64_t offset;
      (void)type.getStridesAndOffset(strides, offset);
      strides.erase(strides.begin(), strides.begin() + count);
      row = memref::ReinterpretCastOp::create(
          builder, loc,
          MemRefType::get(
              shape, type.getElementType(),
              StridedLayoutAttr::get(builder.getContext(), offset, strides)),
          buffer->second, offset, shape, strides);
      return row;
    }
    SmallVector<OpFoldResult> offsets, sizes;
    for (auto [dim, size] : llvm::enumerate(type.getShape())) {
      bool isRow = dim < count;
      offsets.push_back(isRow ? OpFoldResult(rows[dim])
                              : builder.getIndexAttr(0));
      sizes.push_back(builder.getIndexAttr(isRow ? 1 : size));
    }
    SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
    auto result = memref::SubViewOp::inferRankReducedResultType(
        shape, type, offsets, sizes, strides);
    row = memref::SubViewOp::create(builder, loc, cast<MemRefType>(result),
                                    view, offsets, sizes, strides);
    return row;
  }

  void eraseWithViews(Value value) {
    for (Operation *user : llvm::make_early_inc_range(value.getUsers()))
      eraseWithViews(user->getResult(0));
    value.getDefiningOp()->erase();
  }

  const RowGroup &group;
  OpBuilder builder;
  Location loc;
  SmallVector<Value> rows;
  llvm::MapVector<Value, Value> rowBuffers;
  DenseMap<Value, Value> slices;
};

bool isFree(Operation &op) {
  return isViewOp(&op) || op.hasTrait<OpTrait::ConstantLike>() ||
         isa<memref::AllocOp, memref::GetGlobalOp>(op);
}

/// A group, and fills after its first op that can be done before it.
struct Candidate {
  RowGroup group;
  SmallVector<Operation *> ahead;

  size_t size() const { return group.operations().size(); }
  /// Longer rows do not stay in the first-level cache.
  bool fits() const { return group.rowSize() <= 32768; }
};

/// The ops from `first` on that share `depth` loops.
std::optional<Candidate> grow(linalg::LinalgOp first, size_t depth) {
  std::optional<RowGroup> group = RowGroup::start(first, depth);
  if (!group)
    return std::nullopt;
  Candidate candidate{std::move(*group), {}};
  for (Operation *op = first->getNextNode(); op; op = op->getNextNode()) {
    if (isFree(*op))
      continue;
    if (!isa<linalg::GenericOp, linalg::FillOp>(op))
      break;
    auto linalgOp = cast<linalg::LinalgOp>(op);
    if (candidate.group.add(linalgOp))
      continue;
    // The initial value of a sum over rows can be set before the group.
    if (!isa<linalg::FillOp>(op) ||
        !candidate.group.isUntouched(linalgOp.getDpsInits()[0]))
      break;
    candidate.ahead.push_back(op);
  }
  // Without a loop inside the rows nothing would be left to vectorize.
  if (candidate.size() < 2 || candidate.group.rowSize() == 1)
    return std::nullopt;
  return candidate;
}

/// The best number of shared loops: rows that fit in the cache, then most ops,
/// then longest rows.
std::optional<Candidate> choose(linalg::LinalgOp first) {
  std::optional<Candidate> best;
  for (size_t depth = 1; depth <= 3; ++depth) {
    std::optional<Candidate> next = grow(first, depth);
    if (next && (!best || std::make_pair(next->fits(), next->size()) >
                              std::make_pair(best->fits(), best->size())))
      best = std::move(next);
  }
  return best;
}

struct GroupRows : public impl::GroupRowsBase<GroupRows> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration())
      return;
    std::vector<Candidate> candidates;
    SmallPtrSet<Operation *, 32> taken;
    for (Operation &op : function.getBody().front()) {
      if (taken.contains(&op) || !isa<linalg::GenericOp, linalg::FillOp>(op))
        continue;
      std::optional<Candidate> candidate = choose(cast<linalg::LinalgOp>(op));
      if (!candidate)
        continue;
      taken.insert(candidate->group.operations().begin(),
                   candidate->group.operations().end());
      taken.insert(candidate->ahead.begin(), candidate->ahead.end());
      candidates.push_back(std::move(*candidate));
    }
    for (const Candidate &candidate : candidates) {
      moveAhead(candidate);
      GroupEmitter(candidate.group).emit();
    }
  }

  void moveAhead(const Candidate &candidate) {
    Operation *first = candidate.group.operations().front();
    for (Operation *op : candidate.ahead) {
      for (Value operand : op->getOperands())
        moveDefinition(operand, first);
      op->moveBefore(first);
    }
  }

  /// Moves what computes `value` (views, allocations, constants) before `at`.
  void moveDefinition(Value value, Operation *at) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != at->getBlock() || op->isBeforeInBlock(at))
      return;
    for (Value operand : op->getOperands())
      moveDefinition(operand, at);
    op->moveBefore(at);
  }
};
} // namespace
} // namespace piper
