// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Place.cpp - device groups and the transfers between them -----------===//
//
// Gives every compute node its device group, then turns each value that another
// group uses into one send and one receive per (value, group), whatever the
// distance between the groups. Reads and inputs have no place of their own:
// every group has its own copy.
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Builders.h"
#include "passes/Passes.h"
#include "passes/directives/Filter.h"
#include "passes/directives/Groups.h"

namespace piper {
#define GEN_PASS_DEF_PLACE
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
/// A device group as a directive gives it.
struct Placement {
  DenseI64ArrayAttr ranks;
  StringRef transferStream;
  Operation *directive = nullptr;

  explicit operator bool() const { return static_cast<bool>(ranks); }
};

/// Decides the group of every node of one graph.
class Placer {
public:
  Placer(GraphOp graph, ArrayRef<Placement> placements)
      : graph(graph), index(graph), placements(placements) {}

  LogicalResult match(ArrayRef<DictionaryAttr> filters);
  LogicalResult placeRest();
  void placeAll(const Placement &placement) {
    for (ComputeOp node : index.getNodes())
      groups[node] = placement;
  }
  void assign();
  Placement lookup(Operation *op) const { return groups.lookup(op); }

private:
  Placement findNeighbour(ComputeOp node) const;

  GraphOp graph;
  NodeIndex index;
  ArrayRef<Placement> placements;
  llvm::DenseMap<Operation *, Placement> groups;
};

/// The groups whose nodes read a state, in any graph.
using Readers = llvm::DenseMap<Attribute, llvm::SetVector<Attribute>>;

/// Inserts the transfers of one graph.
class TransferBuilder {
public:
  TransferBuilder(GraphOp graph, const Placer &placer, const Readers &readers)
      : graph(graph), placer(placer), readers(readers),
        builder(graph.getContext()) {
    for (auto node : graph.getBody().front().getOps<ComputeOp>())
      positions.insert({node, positions.size()});
  }

  LogicalResult run();

private:
  SmallVector<ComputeOp> getUsers(Value value) const;
  LogicalResult transferUses(ComputeOp producer, Value value);
  LogicalResult transferWrite(WriteOp write);
  FailureOr<Value> getTransferred(Value value, ComputeOp producer,
                                  DenseI64ArrayAttr to, Location user);

  GraphOp graph;
  const Placer &placer;
  const Readers &readers;
  OpBuilder builder;
  /// Positions of the nodes: transfers are made in the order of their users.
  llvm::DenseMap<Operation *, unsigned> positions;
  llvm::DenseMap<std::pair<Value, Attribute>, Value> received;
};
} // namespace

LogicalResult Placer::match(ArrayRef<DictionaryAttr> filters) {
  for (auto [placement, filter] : llvm::zip(placements, filters)) {
    for (ComputeOp node : index.match(filter)) {
      Placement &group = groups[node];
      if (group && group.ranks != placement.ranks) {
        InFlightDiagnostic error =
            node.emitOpError("expected one device group for ")
            << describe(node) << ", got " << describe(group.ranks.asArrayRef())
            << " and " << describe(placement.ranks.asArrayRef());
        error.attachNote(group.directive->getLoc()) << "one group given here";
        error.attachNote(placement.directive->getLoc()) << "the other here";
        return error;
      }
      if (!group)
        group = placement;
    }
  }
  return success();
}

/// The group of the first placed node that uses a result of `node`, else of the
/// first that makes an operand.
Placement Placer::findNeighbour(ComputeOp node) const {
  Operation *first = nullptr;
  for (Operation *user : node->getUsers())
    if (groups.contains(user) && (!first || user->isBeforeInBlock(first)))
      first = user;
  if (first)
    return groups.lookup(first);
  for (Value operand : node.getInputs())
    if (Operation *producer = operand.getDefiningOp())
      if (groups.contains(producer))
        return groups.lookup(producer);
  return {};
}

/// Sums between annotated parts carry no annotation: they go where they are
/// used.
LogicalResult Placer::placeRest() {
  llvm::DenseSet<StringAttr> annotations;
  for (ComputeOp node : index.getNodes())
    if (groups.contains(node))
      for (NamedAttribute tag : node.getTags())
        if (!tag.getName().strref().starts_with("_")) // else automatic
          annotations.insert(tag.getName());
  for (auto split : getDirectives<SplitOp>(graph->getParentOfType<ModuleOp>()))
    annotations.erase(split.getDimNameAttr());
  // Users stand behind, so going backwards they are placed first.
  for (ComputeOp node : llvm::reverse(index.getNodes())) {
    if (groups.contains(node))
      continue;
    bool annotated = llvm::any_of(node.getTags(), [&](NamedAttribute tag) {
      return annotations.contains(tag.getName());
    });
    Placement found = annotated ? Placement() : findNeighbour(node);
    if (!found)
      return node.emitOpError("expected a directive that places ")
             << describe(node) << ", got none";
    groups[node] = found;
  }
  return success();
}

void Placer::assign() {
  auto stream = FlatSymbolRefAttr::get(graph.getContext(), computeStream);
  for (ComputeOp node : index.getNodes()) {
    node.setRanksAttr(groups.lookup(node).ranks);
    node.setStreamAttr(stream);
  }
}

FailureOr<Value> TransferBuilder::getTransferred(Value value,
                                                 ComputeOp producer,
                                                 DenseI64ArrayAttr to,
                                                 Location user) {
  Value &result = received[{value, to}];
  if (result)
    return result;
  Placement from = placer.lookup(producer);
  if (from.ranks.size() != to.size()) {
    InFlightDiagnostic error =
        producer.emitOpError("expected device groups of one size on both sides "
                             "of a transfer, got ")
        << from.ranks.size() << " ranks " << describe(from.ranks.asArrayRef())
        << " and " << to.size() << " ranks " << describe(to.asArrayRef());
    error.attachNote(user) << "used here";
    return error;
  }
  FlatSymbolRefAttr stream = getOrCreateStream(
      graph->getParentOfType<ModuleOp>(), from.transferStream);
  Location loc = producer.getLoc();
  builder.setInsertionPointAfter(producer);
  auto token = builder.getType<TokenType>();
  auto send = SendOp::create(
      builder, loc, builder.getType<MessageType>(), token, value, ValueRange(),
      from.ranks, to, stream, producer.getMicrobatchAttr(),
      producer.getNumMicrobatchesAttr(), producer.getTagsAttr());
  auto recv = RecvOp::create(
      builder, loc, value.getType(), token, send.getMessage(), ValueRange(), to,
      from.ranks, stream, producer.getMicrobatchAttr(),
      producer.getNumMicrobatchesAttr(), producer.getTagsAttr());
  result = recv.getResult();
  return result;
}

SmallVector<ComputeOp> TransferBuilder::getUsers(Value value) const {
  SmallVector<ComputeOp> users;
  for (Operation *user : value.getUsers())
    if (auto node = dyn_cast<ComputeOp>(user))
      users.push_back(node);
  llvm::sort(users, [&](ComputeOp a, ComputeOp b) {
    return positions.lookup(a) < positions.lookup(b);
  });
  return users;
}

LogicalResult TransferBuilder::transferUses(ComputeOp producer, Value value) {
  for (ComputeOp user : getUsers(value)) {
    if (user.getRanksAttr() == producer.getRanksAttr())
      continue;
    FailureOr<Value> local =
        getTransferred(value, producer, user.getRanksAttr(), user.getLoc());
    if (failed(local))
      return failure();
    user->replaceUsesOfWith(value, *local);
  }
  return success();
}

/// The last value of a buffer goes to every group that reads the buffer, so
/// that all copies of it agree.
LogicalResult TransferBuilder::transferWrite(WriteOp write) {
  auto producer = write.getValue().getDefiningOp<ComputeOp>();
  if (!producer)
    return success();
  auto groups = readers.lookup(write.getTargetAttr());
  groups.remove(producer.getRanksAttr());
  for (Attribute group : groups)
    if (failed(getTransferred(write.getValue(), producer,
                              cast<DenseI64ArrayAttr>(group), write.getLoc())))
      return failure();
  return success();
}

LogicalResult TransferBuilder::run() {
  Block &body = graph.getBody().front();
  for (auto producer : body.getOps<ComputeOp>())
    for (Value value : producer.getOutputs())
      if (failed(transferUses(producer, value)))
        return failure();
  for (auto write : body.getOps<WriteOp>())
    if (failed(transferWrite(write)))
      return failure();
  return success();
}

static Readers collectReaders(ModuleOp module) {
  Readers readers;
  for (auto graph : module.getOps<GraphOp>())
    for (auto node : graph.getBody().front().getOps<ComputeOp>())
      for (Value operand : node.getInputs())
        if (auto read = operand.getDefiningOp<ReadOp>())
          readers[read.getSourceAttr()].insert(node.getRanksAttr());
  return readers;
}

/// Two groups either are one or have no rank in common: a rank that were in two
/// would hold two different parts of the batch.
static LogicalResult verifyDisjoint(ArrayRef<Placement> placements) {
  llvm::DenseMap<int64_t, const Placement *> owner;
  for (const Placement &placement : placements) {
    for (int64_t rank : placement.ranks.asArrayRef()) {
      const Placement *&other = owner[rank];
      if (!other)
        other = &placement;
      if (other->ranks == placement.ranks)
        continue;
      InFlightDiagnostic error =
          placement.directive->emitOpError(
              "expected device groups that are equal or have no rank in "
              "common, got ")
          << describe(other->ranks.asArrayRef()) << " and "
          << describe(placement.ranks.asArrayRef());
      error.attachNote(other->directive->getLoc()) << "the other group";
      return error;
    }
  }
  return success();
}

namespace {
struct Place : public piper::impl::PlaceBase<Place> {
  void runOnOperation() override {
    if (failed(place(getOperation())))
      return signalPassFailure();
    getOperation().walk([&](SendOp) { ++numTransfers; });
  }

  /// Collects from directives that have a filter and devices.
  template <typename DirectiveT>
  static LogicalResult collect(ModuleOp module, ArrayRef<NodeIndex> graphs,
                               SmallVectorImpl<Placement> &placements,
                               SmallVectorImpl<DictionaryAttr> &filters) {
    for (DirectiveT directive : getDirectives<DirectiveT>(module)) {
      if (failed(verifyFilterMatches(directive, directive.getFilter(), graphs)))
        return failure();
      StringRef stream = "pp_stream";
      if constexpr (std::is_same_v<DirectiveT, PlaceOp>)
        stream = directive.getStream();
      placements.push_back({directive.getDevicesAttr(), stream, directive});
      filters.push_back(directive.getFilter());
    }
    return verifyDisjoint(placements);
  }

  static LogicalResult place(ModuleOp module) {
    SmallVector<NodeIndex> graphs;
    for (auto graph : module.getOps<GraphOp>())
      graphs.emplace_back(graph);
    SmallVector<Placement> placements;
    SmallVector<DictionaryAttr> filters;
    bool placed = !getDirectives<PlaceOp>(module).empty();
    // A strategy that only replicates also says where everything runs.
    if (failed(placed
                   ? collect<PlaceOp>(module, graphs, placements, filters)
                   : collect<ReplicateOp>(module, graphs, placements, filters)))
      return failure();
    getOrCreateStream(module, computeStream);
    SmallVector<Placer> placers;
    for (auto graph : module.getOps<GraphOp>()) {
      Placer &placer = placers.emplace_back(graph, placements);
      if (placements.empty()) {
        if (getNumRanks(module) != 1)
          return mlir::emitError(graph.getLoc(),
                                 "expected a place or replicate directive for "
                                 "a mesh of ")
                 << getNumRanks(module) << " ranks, got none";
        placer.placeAll({DenseI64ArrayAttr::get(module.getContext(), {0}),
                         StringRef(), graph});
      } else if (failed(placer.match(filters)) || failed(placer.placeRest())) {
        return failure();
      }
      placer.assign();
    }
    Readers readers = collectReaders(module);
    for (auto [graph, placer] : llvm::zip(module.getOps<GraphOp>(), placers))
      if (failed(TransferBuilder(graph, placer, readers).run()))
        return failure();
    return success();
  }
};
} // namespace
