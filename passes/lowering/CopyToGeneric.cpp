// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CopyToGeneric.cpp - copies as loops --------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_COPYTOGENERIC
#include "passes/Passes.h.inc"

namespace {
struct CopyToGeneric : public impl::CopyToGenericBase<CopyToGeneric> {
  void runOnOperation() override {
    SmallVector<memref::CopyOp> copies;
    getOperation().walk([&](memref::CopyOp copy) { copies.push_back(copy); });
    for (memref::CopyOp copy : copies)
      convert(copy);
  }

  void convert(memref::CopyOp copy) {
    OpBuilder builder(copy);
    int64_t rank = cast<MemRefType>(copy.getSource().getType()).getRank();
    AffineMap map = builder.getMultiDimIdentityMap(rank);
    SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
    linalg::GenericOp::create(
        builder, copy.getLoc(), ValueRange{copy.getSource()},
        ValueRange{copy.getTarget()}, ArrayRef<AffineMap>{map, map}, loops,
        [](OpBuilder &nested, Location loc, ValueRange elements) {
          linalg::YieldOp::create(nested, loc, elements.front());
        });
    copy.erase();
  }
};
} // namespace
} // namespace piper
