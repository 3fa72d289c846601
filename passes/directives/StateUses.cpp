// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- StateUses.cpp - how placed nodes use states ------------------------===//

#include "passes/directives/Buckets.h"
#include "passes/directives/Groups.h"

using namespace mlir;
using namespace piper;

namespace {
class UseCollector {
public:
  explicit UseCollector(ModuleOp module) : module(module), symbols(module) {
    for (auto split : getDirectives<SplitOp>(module))
      microbatchTags.push_back(split.getDimNameAttr());
  }

  FailureOr<StateUses> run();

private:
  LogicalResult matchDirective(ArrayRef<NodeIndex> graphs,
                               ReplicateOp directive);
  LogicalResult verifyReplicated(ComputeOp node);
  LogicalResult verifySources(GraphOp graph);
  void collectReads(GraphOp graph);
  void collectGradients(GraphOp graph);
  void addGroup(StateUse &use, ComputeOp node);
  StateUse *lookup(FlatSymbolRefAttr name);
  DictionaryAttr getChunkTags(ComputeOp node);

  ModuleOp module;
  SymbolTable symbols;
  SmallVector<StringAttr> microbatchTags;
  llvm::DenseMap<Operation *, ReplicateOp> replicated;
  StateUses uses;
};
} // namespace

static LogicalResult verifyPlaced(ComputeOp node) {
  if (node.getRanksAttr())
    return success();
  return node.emitOpError("expected a device group, got none");
}

/// A directive is about the groups that lie in its devices.
LogicalResult UseCollector::matchDirective(ArrayRef<NodeIndex> graphs,
                                           ReplicateOp directive) {
  // Groups are few and may be large.
  llvm::DenseMap<Attribute, bool> covered;
  ComputeOp elsewhere;
  bool applies = false;
  for (const NodeIndex &graph : graphs)
    for (ComputeOp node : graph.match(directive.getFilter())) {
      if (failed(verifyPlaced(node)))
        return failure();
      auto [it, isNew] = covered.try_emplace(node.getRanksAttr());
      if (isNew)
        it->second = isCovered(*node.getRanks(), directive.getDevices());
      if (!it->second) {
        elsewhere = node;
        continue;
      }
      applies = true;
      ReplicateOp &found = replicated[node];
      if (found) {
        InFlightDiagnostic error =
            directive.emitOpError("expected one replicate directive for ")
            << describe(node) << ", got two";
        error.attachNote(found.getLoc()) << "the other one";
        return error;
      }
      found = directive;
    }
  if (!applies && elsewhere)
    return directive.emitOpError("expected nodes on the devices ")
           << describe(directive.getDevices()) << ", got "
           << describe(elsewhere) << " on " << describe(*elsewhere.getRanks());
  return success();
}

/// What several ranks hold of a state is kept equal by a directive only; nodes
/// without states (sums of gradients between annotated parts) need none.
LogicalResult UseCollector::verifyReplicated(ComputeOp node) {
  if (failed(verifyPlaced(node)))
    return failure();
  bool readsState = llvm::any_of(node.getInputs(), [](Value operand) {
    return operand.getDefiningOp<ReadOp>() != nullptr;
  });
  if (node.getRanksAttr().size() == 1 || replicated.contains(node) ||
      !readsState)
    return success();
  InFlightDiagnostic error =
      node.emitOpError("expected a replicate directive for ")
      << describe(node) << " on the ranks " << describe(*node.getRanks())
      << ", got none";
  for (auto place : getDirectives<PlaceOp>(module))
    if (matches(place.getFilter(), node))
      error.attachNote(place.getLoc()) << "placed here";
  return error;
}

/// Sums and writes take place on the group that made the value.
LogicalResult UseCollector::verifySources(GraphOp graph) {
  auto verify = [](Operation *op, Value value) -> LogicalResult {
    if (isa_and_present<ComputeOp, AccumulateOp>(value.getDefiningOp()))
      return success();
    InFlightDiagnostic error =
        op->emitOpError("expected a value that a node makes");
    error.attachNote(value.getLoc()) << "this value is not made on a group";
    return error;
  };
  Block &body = graph.getBody().front();
  for (auto accumulate : body.getOps<AccumulateOp>())
    for (Value contribution : accumulate.getContributions())
      if (failed(verify(accumulate, contribution)))
        return failure();
  for (auto write : body.getOps<WriteOp>()) {
    auto read = write.getValue().getDefiningOp<ReadOp>();
    bool isUnchanged = read && read.getSourceAttr() == write.getTargetAttr();
    if (!isUnchanged && !write.getValue().getDefiningOp<InputOp>() &&
        failed(verify(write, write.getValue())))
      return failure();
  }
  Operation *terminator = body.getTerminator();
  for (Value value : terminator->getOperands())
    if (failed(verify(terminator, value)))
      return failure();
  return success();
}

StateUse *UseCollector::lookup(FlatSymbolRefAttr name) {
  auto state = symbols.lookup<StateOp>(name.getAttr());
  if (!state)
    return nullptr;
  StateUse &use = uses[name.getAttr()];
  use.state = state;
  return &use;
}

DictionaryAttr UseCollector::getChunkTags(ComputeOp node) {
  NamedAttrList tags(node.getTags());
  for (StringAttr tag : microbatchTags)
    tags.erase(tag);
  return tags.getDictionary(node.getContext());
}

void UseCollector::addGroup(StateUse &use, ComputeOp node) {
  if (llvm::is_contained(use.groups, node.getRanksAttr()))
    return;
  use.groups.push_back(node.getRanksAttr());
  use.directives.push_back(replicated.lookup(node));
}

void UseCollector::collectReads(GraphOp graph) {
  for (auto node : graph.getBody().front().getOps<ComputeOp>())
    for (Value operand : node.getInputs()) {
      auto read = operand.getDefiningOp<ReadOp>();
      StateUse *use = read ? lookup(read.getSourceAttr()) : nullptr;
      if (!use)
        continue;
      if (!use->chunk)
        use->chunk = getChunkTags(node);
      addGroup(*use, node);
    }
}

void UseCollector::collectGradients(GraphOp graph) {
  Block &body = graph.getBody().front();
  for (auto accumulate : body.getOps<AccumulateOp>()) {
    FlatSymbolRefAttr name = accumulate.getStateAttr();
    StateUse *use = name ? lookup(name) : nullptr;
    if (!use)
      continue;
    use->hasGradient = true;
    for (Value contribution : accumulate.getContributions())
      if (auto node = contribution.getDefiningOp<ComputeOp>())
        addGroup(*use, node);
  }
  for (auto update : body.getOps<UpdateOp>())
    if (StateUse *use = lookup(update.getTargetAttr()))
      use->optimizer = update.getOptimizerAttr();
  for (auto write : body.getOps<WriteOp>())
    if (StateUse *use = lookup(write.getTargetAttr())) {
      use->isWritten = true;
      if (auto node = write.getValue().getDefiningOp<ComputeOp>())
        addGroup(*use, node);
    }
}

FailureOr<StateUses> UseCollector::run() {
  SmallVector<NodeIndex> graphs;
  for (auto graph : module.getOps<GraphOp>())
    graphs.emplace_back(graph);
  for (auto directive : getDirectives<ReplicateOp>(module)) {
    if (failed(verifyFilterMatches(directive, directive.getFilter(), graphs)))
      return failure();
    if (failed(matchDirective(graphs, directive)))
      return failure();
  }
  for (const NodeIndex &graph : graphs)
    for (ComputeOp node : graph.getNodes())
      if (failed(verifyReplicated(node)))
        return failure();
  for (auto graph : module.getOps<GraphOp>())
    if (failed(verifySources(graph)))
      return failure();
  for (auto graph : module.getOps<GraphOp>())
    collectReads(graph);
  for (auto graph : module.getOps<GraphOp>())
    collectGradients(graph);
  return std::move(uses);
}

FailureOr<StateUses> piper::collectStateUses(ModuleOp module) {
  return UseCollector(module).run();
}
