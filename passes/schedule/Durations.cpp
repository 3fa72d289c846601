// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Durations.cpp - how long the nodes of a graph take -----------------===//

#include "passes/schedule/Durations.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/lowering/Work.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace piper;

/// A transfer; a forward takes 16 of them and a full backward twice that, where
/// the functions do not say more.
static constexpr int64_t transfer = 16;
static constexpr int64_t forward = 16 * transfer, backward = 2 * forward;

/// Multiply-adds of a matrix product in the time of one iteration of a loop
/// over elements, before loops are fused.
static constexpr double productSpeed = 8;

Durations::Durations(GraphOp graph) {
  auto module = graph->getParentOfType<ModuleOp>();
  SymbolTable symbols(module);
  llvm::DenseMap<Attribute, double> works;
  double total = 0, usual = 0;
  for (auto node : graph.getBody().getOps<ComputeOp>()) {
    auto [work, isNew] = works.try_emplace(node.getCalleeAttr(), 0);
    if (isNew) {
      auto chunk = symbols.lookup<ChunkOp>(node.getCallee());
      // All members do the same with different numbers of rows.
      auto function =
          symbols.lookup<func::FuncOp>(chunk.getFunctions()[0].getAttr());
      if (!function || function.isExternal())
        return;
      Work counted = countWork(function);
      work->second = counted.iterations + counted.multiplyAdds / productSpeed;
    }
    total += work->second;
    usual += node.getPass() == PassKind::B ? backward : forward;
  }
  // Scaled so that all nodes together take what they would by default.
  for (auto &[chunk, work] : works)
    byChunk[chunk] = total > 0 ? std::max<int64_t>(1, work / total * usual) : 1;
}

int64_t Durations::of(Operation *op) const {
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([&](ComputeOp node) {
        auto known = byChunk.find(node.getCalleeAttr());
        if (known != byChunk.end())
          return known->second;
        return node.getPass() == PassKind::B ? backward : forward;
      })
      .Case<SendOp, RecvOp>([](auto) { return transfer; })
      .Case<AccumulateOp>([](auto) { return 0; })
      .Default([](auto) { return 4 * transfer; });
}
