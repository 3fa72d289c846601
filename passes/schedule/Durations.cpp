// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Durations.cpp - how long the nodes of a graph take -----------------===//

#include "passes/schedule/Durations.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace piper;

/// A transfer; a forward takes 16 of them and a full backward twice that, where
/// the functions do not say more.
static constexpr int64_t transfer = 16;
static constexpr int64_t forward = 16 * transfer, backward = 2 * forward;

/// Multiply-adds of a matrix product run about this much faster than the
/// iterations of a loop over elements, which wait for memory.
static constexpr double productSpeed = 8;

static double countElements(TypeRange types) {
  double elements = 0;
  for (Type type : types)
    if (auto tensor = dyn_cast<RankedTensorType>(type);
        tensor && tensor.hasStaticShape())
      elements += static_cast<double>(tensor.getNumElements());
  return elements;
}

/// In iterations over an element.
static double estimateWork(linalg::LinalgOp op) {
  double iterations = 1;
  for (int64_t range : op.getStaticLoopRanges())
    if (!ShapedType::isDynamic(range))
      iterations *= static_cast<double>(range);
  bool isProduct = op.getNumReductionLoops() > 0 && op.getNumDpsInputs() > 1;
  return isProduct ? iterations / productSpeed : iterations;
}

/// Nothing where the function has no body.
static std::optional<double> estimateWork(func::FuncOp function) {
  if (!function || function.isExternal())
    return std::nullopt;
  double work = 0;
  function.walk([&](Operation *op) {
    if (auto structured = dyn_cast<linalg::LinalgOp>(op))
      work += estimateWork(structured);
    else if (isa<func::CallOp>(op))
      work += countElements(op->getOperandTypes()) +
              countElements(op->getResultTypes());
  });
  return work;
}

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
      std::optional<double> estimate = estimateWork(
          symbols.lookup<func::FuncOp>(chunk.getFunctions()[0].getAttr()));
      if (!estimate)
        return;
      work->second = *estimate;
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
