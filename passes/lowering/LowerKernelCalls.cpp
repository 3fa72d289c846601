// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- LowerKernelCalls.cpp - calls of the kernel library's C functions ---===//
//
// Every function of the kernel library has the signature
// void piper_<symbol>(void *const *args, int64_t const *imm).
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_LOWERKERNELCALLS
#include "passes/Passes.h.inc"

namespace {
struct LowerKernelCalls : public impl::LowerKernelCallsBase<LowerKernelCalls> {
  void runOnOperation() override {
    WalkResult walk = getOperation().walk([&](Operation *op) {
      if (auto gemm = dyn_cast<GemmOp>(op))
        return WalkResult(lower(gemm));
      if (auto call = dyn_cast<LibraryCallOp>(op))
        return WalkResult(lower(call));
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }

  LogicalResult lower(GemmOp gemm) {
    SmallVector<int64_t> strides[3];
    Value operands[] = {gemm.getLhs(), gemm.getRhs(), gemm.getOutput()};
    for (auto [operand, list] : llvm::zip(operands, strides)) {
      auto type = dyn_cast<MemRefType>(operand.getType());
      int64_t offset;
      if (!type)
        return gemm.emitOpError("expected memref operands, got ")
               << operand.getType();
      if (failed(type.getStridesAndOffset(list, offset)) ||
          llvm::any_of(list, ShapedType::isDynamic) || list.back() != 1)
        return gemm.emitOpError("expected operands with constant row strides, "
                                "got ")
               << type;
    }
    auto output = cast<MemRefType>(gemm.getOutput().getType());
    auto lhs = cast<MemRefType>(gemm.getLhs().getType());
    int64_t rank = output.getRank();
    bool batched = rank == 3;
    SmallVector<int64_t> immediates = {
        batched ? output.getDimSize(0) : 1,
        output.getDimSize(rank - 2),
        output.getDimSize(rank - 1),
        lhs.getDimSize(gemm.getTransposeLhs() ? rank - 2 : rank - 1),
        gemm.getTransposeLhs(),
        gemm.getTransposeRhs(),
        gemm.getAccumulate()};
    for (ArrayRef<int64_t> list : strides)
      immediates.push_back(list[rank - 2]);
    for (ArrayRef<int64_t> list : strides)
      immediates.push_back(batched ? list[0] : 0);
    if (lhs.getElementType().isBF16()) {
      immediates.push_back(output.getElementType().isBF16());
      return call(gemm, "gemm_bf16", operands, immediates);
    }
    return call(gemm, batched ? "sgemm_batched" : "sgemm", operands,
                immediates);
  }

  LogicalResult lower(LibraryCallOp op) {
    SmallVector<Value> operands(op.getInputs());
    llvm::append_range(operands, op.getOutputs());
    for (Value operand : operands)
      if (!isa<MemRefType>(operand.getType()))
        return op.emitOpError("expected memref operands, got ")
               << operand.getType();
    return call(op, op.getSymbol(), operands, op.getImmediates());
  }

  /// Replaces `op` by the call of piper_<symbol>.
  LogicalResult call(Operation *op, StringRef symbol, ArrayRef<Value> operands,
                     ArrayRef<int64_t> immediates) {
    Location loc = op->getLoc();
    auto function = op->getParentOfType<func::FuncOp>();
    OpBuilder builder(&function.getBody().front(),
                      function.getBody().front().begin());
    auto pointer = LLVM::LLVMPointerType::get(&getContext());
    Value count = LLVM::ConstantOp::create(
        builder, loc, builder.getI64IntegerAttr(operands.size()));
    Value array =
        LLVM::AllocaOp::create(builder, loc, pointer, pointer, count, 8);
    builder.setInsertionPoint(op);
    for (auto [index, operand] : llvm::enumerate(operands)) {
      Value slot = LLVM::GEPOp::create(
          builder, loc, pointer, pointer, array,
          ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
      LLVM::StoreOp::create(builder, loc, addressOf(builder, operand), slot);
    }
    Value imm = LLVM::AddressOfOp::create(
        builder, loc, pointer, immediateArray(loc, immediates).getSymName());
    LLVM::CallOp::create(builder, loc, declare(loc, symbol),
                         ValueRange{array, imm});
    op->erase();
    return success();
  }

  /// The address of the first element of `memref`.
  Value addressOf(OpBuilder &builder, Value memref) {
    Location loc = memref.getLoc();
    auto type = cast<MemRefType>(memref.getType());
    Value address =
        memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memref);
    SmallVector<int64_t> strides;
    int64_t offset = 0;
    (void)type.getStridesAndOffset(strides, offset);
    if (offset != 0) {
      Value elements;
      if (ShapedType::isDynamic(offset))
        elements =
            memref::ExtractStridedMetadataOp::create(builder, loc, memref)
                .getOffset();
      else
        elements = arith::ConstantIndexOp::create(builder, loc, offset);
      Value width = arith::ConstantIndexOp::create(
          builder, loc, (type.getElementTypeBitWidth() + 7) / 8);
      address = arith::AddIOp::create(
          builder, loc, address,
          arith::MulIOp::create(builder, loc, elements, width));
    }
    address =
        arith::IndexCastOp::create(builder, loc, builder.getI64Type(), address);
    return LLVM::IntToPtrOp::create(
        builder, loc, LLVM::LLVMPointerType::get(&getContext()), address);
  }

  /// A constant array in memory, one for all calls with the same content.
  LLVM::GlobalOp immediateArray(Location loc, ArrayRef<int64_t> values) {
    LLVM::GlobalOp &global =
        arrays[std::vector<int64_t>(values.begin(), values.end())];
    if (global)
      return global;
    OpBuilder builder = OpBuilder::atBlockBegin(getOperation().getBody());
    auto type = LLVM::LLVMArrayType::get(builder.getI64Type(), values.size());
    global = LLVM::GlobalOp::create(
        builder, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal,
        ("piper.imm" + Twine(arrays.size() - 1)).str(),
        builder.getI64TensorAttr(values));
    return global;
  }

  LLVM::LLVMFuncOp declare(Location loc, StringRef symbol) {
    LLVM::LLVMFuncOp &function = functions[symbol];
    if (function)
      return function;
    OpBuilder builder = OpBuilder::atBlockBegin(getOperation().getBody());
    auto pointer = LLVM::LLVMPointerType::get(&getContext());
    function = LLVM::LLVMFuncOp::create(
        builder, loc, ("piper_" + symbol).str(),
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(&getContext()),
                                    {pointer, pointer}));
    return function;
  }

  std::map<std::vector<int64_t>, LLVM::GlobalOp> arrays;
  llvm::StringMap<LLVM::LLVMFuncOp> functions;
};
} // namespace
} // namespace piper
