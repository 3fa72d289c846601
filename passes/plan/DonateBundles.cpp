// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DonateBundles.cpp - saved values that their reader may overwrite ---===//

#include "dialect/PiperDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/Passes.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"

namespace piper {
#define GEN_PASS_DEF_DONATEBUNDLES
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
struct DonateBundles : public piper::impl::DonateBundlesBase<DonateBundles> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    // In program order, so that the text is the same in every process.
    llvm::MapVector<func::FuncOp, llvm::BitVector> donated;
    getOperation().walk([&](ComputeOp op) {
      std::optional<llvm::BitVector> here = getDonated(op, symbols);
      if (!here)
        return;
      for (Attribute name : *op.getFunctions()) {
        auto function = symbols.lookup<func::FuncOp>(
            cast<FlatSymbolRefAttr>(name).getAttr());
        if (!function || function.getNumArguments() != here->size())
          continue;
        auto [entry, isNew] = donated.insert({function, *here});
        if (!isNew)
          entry->second &= *here;
      }
    });
    for (auto &[function, arguments] : donated)
      for (unsigned argument : arguments.set_bits())
        function.setArgAttr(argument, kDonatedAttr,
                            UnitAttr::get(&getContext()));
  }

  /// Of the function's arguments, those that belong to a bundle which nothing
  /// but `op` reads.
  std::optional<llvm::BitVector> getDonated(ComputeOp op,
                                            const SymbolTable &symbols) {
    auto chunk = symbols.lookup<ChunkOp>(op.getCalleeAttr().getAttr());
    if (!chunk || !op.getFunctions())
      return std::nullopt;
    llvm::BitVector donated;
    for (auto [operand, count] :
         llvm::zip(op.getInputs(), chunk.getOperandCounts()))
      donated.resize(donated.size() + count,
                     isa<BundleType>(operand.getType()) && operand.hasOneUse());
    return donated;
  }
};
} // namespace
