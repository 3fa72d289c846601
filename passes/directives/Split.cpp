// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Split.cpp - microbatches -------------------------------------------===//
//
// Copies the nodes of a graph once per microbatch. A buffer becomes a chain:
// microbatch i reads what microbatch i - 1 wrote, as in a loop over
// microbatches. Contributions of all copies meet in the accumulates; so do the
// sums of losses and weights.
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "passes/directives/Filter.h"

namespace piper {
#define GEN_PASS_DEF_SPLIT
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
class GraphSplitter {
public:
  GraphSplitter(GraphOp graph, SplitOp directive)
      : graph(graph), body(graph.getBody().front()), directive(directive),
        builder(graph.getContext()), count(directive.getNumMicrobatches()) {}

  LogicalResult run();

private:
  LogicalResult checkPreconditions();
  void copyMicrobatch(int64_t microbatch);
  Operation *copyNode(ComputeOp node, int64_t microbatch, IRMapping &mapping);
  void copyInput(InputOp input, int64_t microbatch, IRMapping &mapping);
  void threadBuffers();
  void gatherContributions();
  void gatherLoss();
  SmallVector<Value> getCopies(Value value);

  GraphOp graph;
  Block &body;
  SplitOp directive;
  OpBuilder builder;
  int64_t count;
  /// Nodes and split inputs of the unsplit graph.
  SmallVector<Operation *> originals;
  /// What each value of the unsplit graph is in each microbatch.
  SmallVector<IRMapping> copies;
  /// Values that buffers have before the microbatch that is being copied.
  llvm::MapVector<Value, Value> buffers;
};
} // namespace

LogicalResult GraphSplitter::checkPreconditions() {
  for (auto node : body.getOps<ComputeOp>()) {
    if (node.getNumMicrobatches() == 1 &&
        !node.getTags().contains(directive.getDimName()))
      continue;
    InFlightDiagnostic error =
        directive.emitOpError("expected nodes without the tag ")
        << directive.getDimNameAttr() << ", got " << describe(node);
    error.attachNote(node.getLoc()) << "this node";
    return error;
  }
  if (graph.getRows() >= static_cast<uint64_t>(count))
    return success();
  InFlightDiagnostic error =
      directive.emitOpError(
          "expected at most as many microbatches as rows, got ")
      << count << " microbatches of " << graph.getRows() << " rows";
  error.attachNote(graph.getLoc()) << "the batch of this graph";
  return error;
}

Operation *GraphSplitter::copyNode(ComputeOp node, int64_t microbatch,
                                   IRMapping &mapping) {
  auto copy = cast<ComputeOp>(builder.clone(*node, mapping));
  NamedAttrList tags(node.getTags());
  tags.set(directive.getDimName(), builder.getI64IntegerAttr(microbatch));
  copy.setTagsAttr(tags.getDictionary(builder.getContext()));
  copy.setMicrobatchAttr(builder.getI64IntegerAttr(microbatch));
  copy.setNumMicrobatchesAttr(builder.getI64IntegerAttr(count));
  return copy;
}

void GraphSplitter::copyInput(InputOp input, int64_t microbatch,
                              IRMapping &mapping) {
  auto copy = cast<InputOp>(builder.clone(*input, mapping));
  copy.setMicrobatchAttr(builder.getI64IntegerAttr(microbatch));
  copy.setNumMicrobatchesAttr(builder.getI64IntegerAttr(count));
}

void GraphSplitter::copyMicrobatch(int64_t microbatch) {
  IRMapping mapping;
  for (auto [old, current] : buffers)
    mapping.map(old, current);
  for (Operation *op : originals) {
    if (auto node = dyn_cast<ComputeOp>(op))
      copyNode(node, microbatch, mapping);
    else
      copyInput(cast<InputOp>(op), microbatch, mapping);
  }
  for (auto write : body.getOps<WriteOp>())
    for (auto &[old, current] : buffers)
      if (old.getDefiningOp<ReadOp>().getSource() == write.getTarget())
        current = mapping.lookupOrDefault(write.getValue());
  copies.push_back(std::move(mapping));
}

/// Finds the reads of the buffers that this graph writes.
void GraphSplitter::threadBuffers() {
  llvm::DenseSet<StringAttr> written;
  for (auto write : body.getOps<WriteOp>())
    written.insert(write.getTargetAttr().getAttr());
  for (auto read : body.getOps<ReadOp>())
    if (written.contains(read.getSourceAttr().getAttr()))
      buffers.insert({read.getResult(), read.getResult()});
}

SmallVector<Value> GraphSplitter::getCopies(Value value) {
  SmallVector<Value> all;
  for (IRMapping &mapping : copies)
    all.push_back(mapping.lookupOrDefault(value));
  return all;
}

void GraphSplitter::gatherContributions() {
  for (auto accumulate : body.getOps<AccumulateOp>()) {
    SmallVector<Value> all;
    for (IRMapping &mapping : copies)
      for (Value contribution : accumulate.getContributions())
        all.push_back(mapping.lookupOrDefault(contribution));
    accumulate.getContributionsMutable().assign(all);
  }
  for (auto write : body.getOps<WriteOp>())
    write.getValueMutable().assign(
        copies.back().lookupOrDefault(write.getValue()));
}

void GraphSplitter::gatherLoss() {
  auto terminator = cast<ReturnOp>(body.getTerminator());
  builder.setInsertionPoint(terminator);
  for (OpOperand &operand : terminator->getOpOperands()) {
    auto sum = AccumulateOp::create(
        builder, terminator.getLoc(), operand.get().getType(),
        builder.getType<TokenType>(), FlatSymbolRefAttr(),
        getCopies(operand.get()), ValueRange(), DenseI64ArrayAttr(),
        FlatSymbolRefAttr());
    operand.set(sum.getResult());
  }
}

LogicalResult GraphSplitter::run() {
  if (failed(checkPreconditions()))
    return failure();
  // Reads and whole inputs are shared by the copies; accumulates, updates and
  // writes may stand between nodes and move behind all copies.
  SmallVector<Operation *> tail;
  for (Operation &op : body) {
    auto input = dyn_cast<InputOp>(op);
    if (isa<ComputeOp>(op) || (input && input.getSplit()))
      originals.push_back(&op);
    if (isa<AccumulateOp, UpdateOp, WriteOp>(op))
      tail.push_back(&op);
  }
  for (Operation *op : tail)
    op->moveBefore(body.getTerminator());
  builder.setInsertionPoint(tail.empty() ? body.getTerminator() : tail.front());
  threadBuffers();
  for (int64_t microbatch = 0; microbatch < count; ++microbatch)
    copyMicrobatch(microbatch);
  gatherContributions();
  gatherLoss();
  for (Operation *op : llvm::reverse(originals))
    op->erase();
  return success();
}

namespace {
struct Split : public piper::impl::SplitBase<Split> {
  void runOnOperation() override {
    if (failed(split(getOperation())))
      return signalPassFailure();
    getOperation().walk([&](ComputeOp) { ++numNodes; });
  }

  static LogicalResult split(ModuleOp module) {
    SmallVector<SplitOp> directives = getDirectives<SplitOp>(module);
    if (directives.empty())
      return success();
    if (directives.size() > 1) {
      InFlightDiagnostic error =
          directives[1].emitOpError("expected one split per strategy, got ")
          << directives.size();
      error.attachNote(directives[0].getLoc()) << "the first one";
      return error;
    }
    SplitOp directive = directives.front();
    SmallVector<NodeIndex> graphs;
    for (auto graph : module.getOps<GraphOp>())
      graphs.emplace_back(graph);
    if (failed(verifyFilterMatches(directive, directive.getFilter(), graphs)))
      return failure();
    for (const NodeIndex &graph : graphs)
      if (failed(verifyWhole(directive, graph)))
        return failure();
    for (auto graph : module.getOps<GraphOp>())
      if (failed(GraphSplitter(graph, directive).run()))
        return failure();
    return success();
  }

  /// A part of a graph that is not split would need its rows put together.
  static LogicalResult verifyWhole(SplitOp directive, const NodeIndex &graph) {
    for (ComputeOp node : graph.getNodes()) {
      if (matches(directive.getFilter(), node))
        continue;
      InFlightDiagnostic error =
          directive.emitOpError(
              "expected a filter that matches every node, got ")
          << describe(directive.getFilter()) << ", which leaves out "
          << describe(node);
      error.attachNote(node.getLoc()) << "this node";
      return error;
    }
    return success();
  }
};
} // namespace
