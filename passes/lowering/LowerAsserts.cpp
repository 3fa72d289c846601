// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- LowerAsserts.cpp - failed asserts report to the runtime ------------===//
//
// The kernel goes on after a failure: indices have been clamped, and the
// runtime looks at the report after the launch.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_LOWERASSERTS
#include "passes/Passes.h.inc"

namespace {
struct LowerAsserts : public impl::LowerAssertsBase<LowerAsserts> {
  void runOnOperation() override {
    SmallVector<cf::AssertOp> asserts;
    getOperation().walk([&](cf::AssertOp op) { asserts.push_back(op); });
    for (cf::AssertOp op : asserts) {
      lower(op);
      op.erase();
    }
  }

  void lower(cf::AssertOp op) {
    if (matchPattern(op.getArg(), m_One()))
      return;
    OpBuilder builder(op);
    Location loc = op.getLoc();
    Value yes = arith::ConstantIntOp::create(builder, loc, 1, 1);
    Value failed = arith::XOrIOp::create(builder, loc, op.getArg(), yes);
    auto branch = scf::IfOp::create(builder, loc, failed);
    builder.setInsertionPointToStart(branch.thenBlock());
    func::CallOp::create(builder, loc, reporter(loc, op.getMsg()),
                         ValueRange());
  }

  /// A function without arguments that reports `message`.
  func::FuncOp reporter(Location loc, StringRef message) {
    func::FuncOp &function = reporters[message];
    if (function)
      return function;
    OpBuilder builder = OpBuilder::atBlockBegin(getOperation().getBody());
    auto pointer = LLVM::LLVMPointerType::get(&getContext());
    std::string suffix = std::to_string(reporters.size() - 1);
    std::string text = message.str() + '\0';
    auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), text.size());
    auto global = LLVM::GlobalOp::create(
        builder, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal,
        "piper.message" + suffix, builder.getStringAttr(text));
    if (!fail)
      fail = LLVM::LLVMFuncOp::create(
          builder, loc, "piper_kernel_fail",
          LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(&getContext()),
                                      {pointer}));
    function = func::FuncOp::create(builder, loc, "piper.report" + suffix,
                                    builder.getFunctionType({}, {}));
    function.setPrivate();
    builder.setInsertionPointToStart(function.addEntryBlock());
    Value address =
        LLVM::AddressOfOp::create(builder, loc, pointer, global.getSymName());
    LLVM::CallOp::create(builder, loc, fail, address);
    func::ReturnOp::create(builder, loc);
    return function;
  }

  llvm::StringMap<func::FuncOp> reporters;
  LLVM::LLVMFuncOp fail;
};
} // namespace
} // namespace piper
