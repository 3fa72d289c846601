// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Order.cpp - order that data does not give --------------------------===//
//
// Adds a token from each node of a group to each node of the next, where both
// run on one rank; a token that other tokens and data inside a group imply is
// left out. Then sorts the graph, or shows the cycle.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/directives/Filter.h"
#include "passes/directives/Groups.h"
#include "passes/schedule/GraphOrder.h"
#include "passes/schedule/library/Problem.h"
#include <map>

namespace piper {
#define GEN_PASS_DEF_ORDER
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
using Nodes = SmallVector<ComputeOp>;

/// An order that a directive asks for. Nodes on different ranks get no token,
/// but their order must agree with the data as well.
struct TokenEdge {
  ComputeOp before, after;
  OrderOp directive;
  bool isToken;
};

class Orderer {
public:
  explicit Orderer(GraphOp graph) : graph(graph), index(graph) {}

  void add(OrderOp directive);
  LogicalResult apply();

private:
  Nodes match(Attribute group);
  void connect(ArrayRef<ComputeOp> before, ArrayRef<ComputeOp> after,
               OrderOp directive);
  LogicalResult reportCycle(const GraphOrder &order,
                            ArrayRef<uint32_t> cycle) const;
  std::string drawGrid(ArrayRef<Operation *> cycle) const;

  GraphOp graph;
  NodeIndex index;
  SmallVector<TokenEdge> edges;
  /// Everything that directives name, in the order in which they do.
  SmallVector<ComputeOp> named;
};
} // namespace

/// The nodes that any filter of the group matches, in graph order.
Nodes Orderer::match(Attribute group) {
  Nodes nodes;
  llvm::DenseSet<Operation *> seen;
  for (auto filter : cast<ArrayAttr>(group).getAsRange<DictionaryAttr>())
    for (ComputeOp node : index.match(filter))
      if (seen.insert(node).second)
        nodes.push_back(node);
  return nodes;
}

/// Drops the nodes that an edge inside the group leads out of (to find the
/// last ones) or into (to find the first ones).
static Nodes getEnds(ArrayRef<ComputeOp> nodes, bool last) {
  llvm::DenseSet<Operation *> members, inner;
  for (ComputeOp node : nodes)
    members.insert(node);
  for (ComputeOp node : nodes)
    for (Value operand : node.getInputs()) {
      Operation *producer = operand.getDefiningOp();
      if (producer && producer != node && members.contains(producer))
        inner.insert(last ? producer : node.getOperation());
    }
  Nodes ends;
  for (ComputeOp node : nodes)
    if (!inner.contains(node))
      ends.push_back(node);
  return ends;
}

static bool shareRank(ComputeOp a, ComputeOp b) {
  if (a.getRanksAttr() == b.getRanksAttr() || !a.getRanks() || !b.getRanks())
    return true;
  return llvm::any_of(*a.getRanks(), [&](int64_t rank) {
    return llvm::is_contained(*b.getRanks(), rank);
  });
}

/// Whether data joins the two nodes, sent or not.
static bool usesResult(ComputeOp user, ComputeOp producer) {
  return llvm::any_of(user.getInputs(), [&](Value operand) {
    if (auto recv = operand.getDefiningOp<RecvOp>())
      operand = recv.getMessage().getDefiningOp<SendOp>().getOperand();
    return operand.getDefiningOp() == producer;
  });
}

void Orderer::connect(ArrayRef<ComputeOp> before, ArrayRef<ComputeOp> after,
                      OrderOp directive) {
  // Ranks meet in transfers and collectives only: nothing could keep an order
  // between nodes that never meet.
  if (!before.empty() && llvm::none_of(before, [&](ComputeOp a) {
        return llvm::any_of(after, [&](ComputeOp b) {
          return shareRank(a, b) || usesResult(b, a);
        });
      }))
    directive.emitWarning("expected groups that share a rank, got ")
        << describe(before.front()) << " on "
        << describe(*ComputeOp(before.front()).getRanks()) << " and "
        << describe(after.front()) << " on "
        << describe(*ComputeOp(after.front()).getRanks())
        << ": their order is left to the data";
  for (ComputeOp a : before)
    for (ComputeOp b : after)
      if (!usesResult(b, a))
        edges.push_back({a, b, directive, shareRank(a, b)});
}

void Orderer::add(OrderOp directive) {
  Nodes previous;
  for (Attribute group : directive.getGroups()) {
    Nodes nodes = match(group);
    // A graph without backward has nothing of a group that names one.
    if (nodes.empty())
      continue;
    connect(getEnds(previous, /*last=*/true), getEnds(nodes, /*last=*/false),
            directive);
    llvm::append_range(named, nodes);
    previous = std::move(nodes);
  }
}

/// What stands in a cycle for an operation that is no compute node.
static std::string describeOp(Operation *op) {
  if (auto node = dyn_cast<ComputeOp>(op))
    return describe(node);
  return op->getName().getStringRef().str();
}

/// What the directives ask of each device group, by its first rank, with an
/// arrow at each operation of the cycle.
std::string Orderer::drawGrid(ArrayRef<Operation *> cycle) const {
  std::map<int64_t, std::vector<ComputeOp>> rows;
  for (ComputeOp node : named)
    rows[node.getRanks() ? node.getRanks()->front() : 0].push_back(node);
  schedule::Grid grid;
  std::vector<schedule::Mark> marks;
  for (const auto &[rank, nodes] : rows) {
    grid.ranks.push_back(rank);
    std::vector<std::string> &cells = grid.rows.emplace_back();
    for (ComputeOp node : nodes) {
      std::string label =
          (stringifyPassKind(node.getPass()) + describeShortly(node.getTags()))
              .str();
      if (llvm::is_contained(cycle, node.getOperation()))
        marks.push_back({{grid.rows.size() - 1, cells.size()}, label});
      cells.push_back(label);
    }
  }
  return schedule::print(grid, marks);
}

LogicalResult Orderer::reportCycle(const GraphOrder &order,
                                   ArrayRef<uint32_t> cycle) const {
  llvm::DenseMap<std::pair<Operation *, Operation *>, OrderOp> asked;
  for (const TokenEdge &edge : edges)
    asked.insert({{edge.before, edge.after}, edge.directive});
  SmallVector<Operation *> ops;
  for (uint32_t event : cycle)
    ops.push_back(order.getOp(event));
  auto getDirective = [&](size_t i) {
    return asked.lookup({ops[i], ops[(i + 1) % ops.size()]});
  };
  OrderOp first;
  for (size_t i = 0; i < ops.size() && !first; ++i)
    first = getDirective(i);
  InFlightDiagnostic error =
      first.emitOpError("expected an order that agrees with the data, got a "
                        "cycle of ")
      << ops.size() << " operations";
  for (size_t i = 0; i < ops.size(); ++i) {
    OrderOp directive = getDirective(i);
    error.attachNote(ops[i]->getLoc())
        << describeOp(ops[i]) << " comes before "
        << describeOp(ops[(i + 1) % ops.size()])
        << (directive ? " by order" : " by data");
  }
  error.attachNote() << "the order of each rank:\n" << drawGrid(ops);
  return error;
}

LogicalResult Orderer::apply() {
  if (edges.empty())
    return success();
  GraphOrder order(graph);
  for (const TokenEdge &edge : edges)
    order.addEdge(edge.before, edge.after);
  std::vector<uint32_t> cycle = order.getEvents().findCycle();
  if (!cycle.empty())
    return reportCycle(order, cycle);
  order.apply(*order.getEvents().sort());
  for (const TokenEdge &edge : edges) {
    ComputeOp after = edge.after;
    ComputeOp before = edge.before;
    if (edge.isToken &&
        !llvm::is_contained(after.getAfter(), before.getToken()))
      after.getAfterMutable().append(before.getToken());
  }
  return success();
}

namespace {
struct Order : public piper::impl::OrderBase<Order> {
  void runOnOperation() override {
    if (failed(order(getOperation())))
      return signalPassFailure();
    getOperation().walk(
        [&](ComputeOp node) { numTokens += node.getAfter().size(); });
  }

  static LogicalResult order(ModuleOp module) {
    SmallVector<NodeIndex> indices;
    for (auto graph : module.getOps<GraphOp>())
      indices.emplace_back(graph);
    SmallVector<OrderOp> directives = getDirectives<OrderOp>(module);
    for (OrderOp directive : directives)
      for (Attribute group : directive.getGroups())
        for (auto filter : cast<ArrayAttr>(group).getAsRange<DictionaryAttr>())
          if (failed(verifyFilterMatches(directive, filter, indices)))
            return failure();
    for (auto graph : module.getOps<GraphOp>()) {
      Orderer orderer(graph);
      for (OrderOp directive : directives)
        orderer.add(directive);
      if (failed(orderer.apply()))
        return failure();
    }
    return success();
  }
};
} // namespace
