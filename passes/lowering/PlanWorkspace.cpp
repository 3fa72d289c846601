// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanWorkspace.cpp - allocations as parts of one workspace ----------===//

#include "passes/Passes.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_PLANWORKSPACE
#include "passes/Passes.h.inc"

namespace {
constexpr int64_t kAlignment = 64;

/// A buffer, the span of top-level ops that use it, and where it was put.
struct Buffer {
  memref::AllocOp alloc;
  int64_t bytes;
  int64_t first, last;
  int64_t offset = 0;

  bool overlaps(const Buffer &other) const {
    return first <= other.last && other.first <= last;
  }
};

struct PlanWorkspace : public impl::PlanWorkspaceBase<PlanWorkspace> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function.isPublic() || function.isDeclaration())
      return;
    Block &body = function.getBody().front();
    function.walk([](memref::DeallocOp op) { op.erase(); });
    for (Operation &op : body)
      position[&op] = position.size();

    SmallVector<Buffer> buffers;
    WalkResult walk = function.walk([&](memref::AllocOp alloc) {
      if (!alloc.getType().hasStaticShape() ||
          !alloc.getType().getLayout().isIdentity()) {
        alloc.emitError("expected an allocation of static size, got ")
            << alloc.getType();
        return WalkResult::interrupt();
      }
      buffers.push_back(describe(alloc, body));
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    int64_t bytes = place(buffers);
    OpBuilder builder(&getContext());
    function->setAttr(kWorkspaceAttr, builder.getI64IntegerAttr(bytes));
    if (bytes != 0)
      replace(function, buffers, bytes);
  }

  Buffer describe(memref::AllocOp alloc, Block &body) {
    MemRefType type = alloc.getType();
    int64_t width = (type.getElementTypeBitWidth() + 7) / 8;
    if (isa<IndexType>(type.getElementType()))
      width = 8;
    Buffer buffer{alloc,
                  llvm::alignTo(type.getNumElements() * width, kAlignment),
                  INT64_MAX, -1};
    extend(buffer, alloc.getResult(), body);
    // An allocation inside a loop is used by that loop alone.
    Operation *ancestor = body.findAncestorOpInBlock(*alloc);
    if (ancestor != alloc.getOperation())
      buffer.first = std::min(buffer.first, position[ancestor]);
    return buffer;
  }

  /// Adds the uses of `value` and of its views to the span of `buffer`.
  void extend(Buffer &buffer, Value value, Block &body) {
    for (Operation *user : value.getUsers()) {
      if (isViewOp(user)) {
        extend(buffer, user->getResult(0), body);
        continue;
      }
      int64_t at = position[body.findAncestorOpInBlock(*user)];
      buffer.first = std::min(buffer.first, at);
      buffer.last = std::max(buffer.last, at);
    }
  }

  /// First fit in the order of first use. Returns the size of the whole.
  int64_t place(MutableArrayRef<Buffer> buffers) {
    SmallVector<Buffer *> order;
    for (Buffer &buffer : buffers)
      order.push_back(&buffer);
    llvm::stable_sort(order, [](Buffer *a, Buffer *b) {
      return std::make_pair(a->first, -a->bytes) <
             std::make_pair(b->first, -b->bytes);
    });
    // Sorted by offset.
    SmallVector<Buffer *> placed;
    int64_t total = 0;
    for (Buffer *buffer : order) {
      int64_t offset = 0;
      for (Buffer *other : placed) {
        if (!other->overlaps(*buffer))
          continue;
        if (offset + buffer->bytes <= other->offset)
          break;
        offset = std::max(offset, other->offset + other->bytes);
      }
      buffer->offset = offset;
      total = std::max(total, offset + buffer->bytes);
      auto *at = llvm::upper_bound(placed, buffer, [](Buffer *a, Buffer *b) {
        return a->offset < b->offset;
      });
      placed.insert(at, buffer);
    }
    return total;
  }

  void replace(func::FuncOp function, MutableArrayRef<Buffer> buffers,
               int64_t bytes) {
    Block &body = function.getBody().front();
    OpBuilder builder(&body, body.begin());
    auto type = MemRefType::get({bytes}, builder.getI8Type());
    Value workspace = body.addArgument(type, function.getLoc());
    function.setFunctionType(
        builder.getFunctionType(body.getArgumentTypes(), {}));
    for (Buffer &buffer : buffers) {
      builder.setInsertionPoint(buffer.alloc);
      Location loc = buffer.alloc->getLoc();
      Value offset =
          arith::ConstantIndexOp::create(builder, loc, buffer.offset);
      Value view = memref::ViewOp::create(builder, loc, buffer.alloc.getType(),
                                          workspace, offset, ValueRange());
      buffer.alloc.replaceAllUsesWith(view);
      buffer.alloc->erase();
    }
  }

  DenseMap<Operation *, int64_t> position;
};
} // namespace
} // namespace piper
