// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RowGroup.cpp - linalg ops that can share a loop over rows ----------===//

#include "passes/lowering/RowGroup.h"
#include "passes/lowering/Lowering.h"

using namespace mlir;
using namespace piper;

std::optional<RowGroup> RowGroup::start(linalg::LinalgOp op, size_t depth) {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  if (ranges.size() < depth || llvm::any_of(ranges, ShapedType::isDynamic) ||
      llvm::is_contained(ranges, 0))
    return std::nullopt;
  RowGroup group;
  group.rows.assign(ranges.begin(), ranges.begin() + depth);
  if (!group.add(op))
    return std::nullopt;
  return group;
}

int64_t RowGroup::rowSize() const {
  int64_t most = 1;
  for (Operation *op : ops) {
    int64_t size = 1;
    SmallVector<int64_t> ranges =
        cast<linalg::LinalgOp>(op).getStaticLoopRanges();
    for (int64_t range : llvm::drop_begin(ranges, rows.size()))
      size *= range;
    most = std::max(most, size);
  }
  return most;
}

bool RowGroup::isUntouched(Value memref) const {
  return !touched.contains(baseOf(memref));
}

std::optional<RowAccess> RowGroup::analyzeOperand(linalg::LinalgOp op,
                                                  OpOperand &operand,
                                                  AffineMap map) const {
  size_t count = rows.size();
  RowAccess access;
  access.writes = op.isDpsInit(&operand);
  auto usesRows = [&](AffineExpr expr) {
    for (size_t i = 0; i < count; ++i)
      if (expr.isFunctionOfDim(i))
        return true;
    return false;
  };
  if (llvm::none_of(map.getResults(), usesRows))
    return access;
  if (map.getNumResults() < count)
    return std::nullopt;
  for (auto [index, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    bool leads = index < count;
    if (leads ? !dim || dim.getPosition() != index : usesRows(expr))
      return std::nullopt;
  }

  access.isRow = true;
  auto type = cast<MemRefType>(operand.get().getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)) ||
      ShapedType::isDynamic(offset) ||
      llvm::any_of(strides, ShapedType::isDynamic))
    return access;
  access.rowStrides.assign(strides.begin(), strides.begin() + count);
  int64_t last = offset;
  for (int64_t dim = count; dim < type.getRank(); ++dim)
    last += (type.getDimSize(dim) - 1) * strides[dim];
  access.disjoint = last < strides[count - 1];
  for (size_t dim = 0; dim + 1 < count; ++dim)
    access.disjoint &= strides[dim] >= strides[dim + 1] * rows[dim + 1];
  return access;
}

std::optional<RowGroup::Accesses> RowGroup::analyze(linalg::LinalgOp op) const {
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  size_t count = rows.size();
  if (ranges.size() < count || !op.hasPureBufferSemantics() ||
      !std::equal(rows.begin(), rows.end(), ranges.begin()) ||
      llvm::is_contained(ranges, 0))
    return std::nullopt;
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  bool parallelRows = false;
  for (size_t i = 0; i < count; ++i)
    parallelRows |= iterators[i] == utils::IteratorType::parallel;

  Accesses accesses;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType())) {
      accesses.push_back(std::nullopt);
      continue;
    }
    auto access = analyzeOperand(op, operand, maps[operand.getOperandNumber()]);
    // An output that rows do not address sums over all of them.
    if (!access || (access->writes && !access->isRow && parallelRows))
      return std::nullopt;
    accesses.push_back(access);
  }
  return accesses;
}

/// May the two accesses of one buffer be interleaved row by row?
static bool interleave(const RowAccess &a, const RowAccess &b) {
  if (!a.writes && !b.writes)
    return true;
  return a.isRow && b.isRow && a.disjoint && b.disjoint &&
         a.rowStrides == b.rowStrides;
}

/// Buffers that the body of `op` reads by itself, from any row: a gather.
static SmallVector<Value> gatheredBuffers(linalg::LinalgOp op) {
  SmallVector<Value> buffers;
  op->walk([&](Operation *inner) {
    if (inner == op.getOperation())
      return;
    for (Value operand : inner->getOperands())
      if (isa<MemRefType>(operand.getType()))
        buffers.push_back(baseOf(operand));
  });
  return buffers;
}

bool RowGroup::add(linalg::LinalgOp op) {
  std::optional<Accesses> accesses = analyze(op);
  if (!accesses)
    return false;
  const RowAccess anyRow;
  SmallVector<Value> gathered = gatheredBuffers(op);
  for (Value buffer : gathered) {
    auto earlier = touched.find(buffer);
    if (earlier != touched.end())
      for (const RowAccess &other : earlier->second)
        if (!interleave(anyRow, other))
          return false;
  }
  for (auto [operand, access] : llvm::zip(op->getOperands(), *accesses)) {
    if (!access)
      continue;
    auto earlier = touched.find(baseOf(operand));
    if (earlier != touched.end())
      for (const RowAccess &other : earlier->second)
        if (!interleave(*access, other))
          return false;
  }
  // The accesses within one op need the same: it reads and writes in one go.
  for (auto [operand, access] : llvm::zip(op->getOperands(), *accesses))
    if (access)
      touched[baseOf(operand)].push_back(*access);
  for (Value buffer : gathered)
    touched[buffer].push_back(anyRow);
  ops.push_back(op);
  operandAccesses.push_back(std::move(*accesses));
  return true;
}

/// All ops that access the buffer of `value`, through any view.
static void collectUsers(Value value, SmallPtrSetImpl<Operation *> &users) {
  for (Operation *user : value.getUsers()) {
    if (isViewOp(user))
      collectUsers(user->getResult(0), users);
    else
      users.insert(user);
  }
}

SmallVector<memref::AllocOp> RowGroup::privateBuffers() const {
  SmallPtrSet<Operation *, 8> members;
  members.insert(ops.begin(), ops.end());
  SmallVector<memref::AllocOp> buffers;
  for (const auto &[base, accesses] : touched) {
    auto alloc = base.getDefiningOp<memref::AllocOp>();
    if (!alloc || alloc.getType().getRank() < (int64_t)rows.size() ||
        !alloc.getType().getLayout().isIdentity() ||
        alloc.getType().getShape().take_front(rows.size()) != extents())
      continue;
    SmallVector<int64_t> strides;
    int64_t offset;
    (void)alloc.getType().getStridesAndOffset(strides, offset);
    strides.resize(rows.size());
    SmallPtrSet<Operation *, 8> users;
    collectUsers(base, users);
    bool byRow = llvm::all_of(accesses, [&](const RowAccess &access) {
      return access.isRow && access.disjoint && access.rowStrides == strides;
    });
    if (byRow && llvm::all_of(users, [&](Operation *user) {
          return members.contains(user);
        }))
      buffers.push_back(alloc);
  }
  // The map's order is that of pointers; the program's order is not.
  llvm::sort(buffers, [](memref::AllocOp a, memref::AllocOp b) {
    return a->isBeforeInBlock(b);
  });
  return buffers;
}
