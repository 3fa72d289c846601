// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DeadlockProof.cpp - happens-before over all ranks ------------------===//
//
// Every operation begins and ends on each class of ranks that runs it. A stream
// begins an operation when the one before has ended; an operation begins when
// its operands and tokens of that class have ended; a collective ends nowhere
// before it has begun everywhere; a receive ends after its send has begun, and
// a send that waits, after its receive has.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/DeadlockProof.h"
#include "passes/directives/Filter.h"
#include "passes/directives/Groups.h"
#include "passes/schedule/library/EventGraph.h"
#include "passes/schedule/library/Problem.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;
using namespace piper;
using schedule::EventGraph;

namespace {
/// Ranks that are in the same groups.
struct RankClasses {
  explicit RankClasses(ArrayRef<Attribute> groups);

  /// The classes that a group is made of, by group.
  llvm::DenseMap<Attribute, SmallVector<unsigned>> ofGroup;
  llvm::DenseMap<int64_t, unsigned> ofRank;
  /// The lowest rank of each class stands for it.
  SmallVector<int64_t> firstRank;
};

/// Begin and end of one operation on one class.
struct Span {
  unsigned rankClass;
  EventGraph::Event begin, end;
};

class DeadlockProof {
public:
  explicit DeadlockProof(GraphOp graph);
  LogicalResult run();

private:
  void addOp(SchedulableOpInterface op);
  void addOrder(SchedulableOpInterface op, Span span);
  void addRendezvous(ArrayRef<Span> members);
  using ClassPairs = llvm::SmallSetVector<std::pair<unsigned, unsigned>, 2>;
  ClassPairs pairClasses(SendOp send) const;
  void addMessages(EventGraph &graph, bool sendsWait) const;
  LogicalResult report(ArrayRef<EventGraph::Event> cycle, bool sendsWait);
  using Stuck = llvm::SmallSetVector<std::pair<Operation *, unsigned>, 8>;
  std::string drawGrid(const Stuck &stuck) const;

  GraphOp graph;
  std::optional<RankClasses> classes;
  EventGraph events;
  /// What each event is: an operation on a class.
  SmallVector<std::pair<Operation *, unsigned>> labels;
  llvm::MapVector<Operation *, SmallVector<Span>> spans;
  /// Operations whose results an operation that runs nowhere (a view) stands
  /// for.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> behind;
  llvm::DenseMap<std::pair<Attribute, unsigned>, EventGraph::Event>
      lastOnStream;
};
} // namespace

RankClasses::RankClasses(ArrayRef<Attribute> groups) {
  std::map<int64_t, llvm::BitVector> memberships;
  for (auto [number, group] : llvm::enumerate(groups))
    for (int64_t rank : cast<DenseI64ArrayAttr>(group).asArrayRef()) {
      auto [it, isNew] = memberships.try_emplace(rank, groups.size());
      it->second.set(number);
    }
  SmallVector<const llvm::BitVector *> known;
  for (auto &[rank, membership] : memberships) {
    auto same = llvm::find_if(known, [&](const llvm::BitVector *other) {
      return *other == membership;
    });
    ofRank[rank] = same - known.begin();
    if (same != known.end())
      continue;
    for (unsigned number : membership.set_bits())
      ofGroup[groups[number]].push_back(known.size());
    known.push_back(&membership);
    firstRank.push_back(rank);
  }
}

DeadlockProof::DeadlockProof(GraphOp graph) : graph(graph) {
  llvm::SmallSetVector<Attribute, 8> groups;
  for (Operation &op : graph.getBody().front())
    if (auto schedulable = dyn_cast<SchedulableOpInterface>(op))
      groups.insert(schedulable.getRanksAttr());
  classes.emplace(groups.getArrayRef());
}

/// Order on one class: stream, operands and tokens.
void DeadlockProof::addOrder(SchedulableOpInterface op, Span span) {
  events.addEdge(span.begin, span.end);
  auto [last, isFirst] =
      lastOnStream.try_emplace({op.getStreamAttr(), span.rankClass}, span.end);
  if (!isFirst) {
    events.addEdge(last->second, span.begin);
    last->second = span.end;
  }
  for (Operation *producer : behind[op])
    for (Span made : spans.lookup(producer))
      if (made.rankClass == span.rankClass)
        events.addEdge(made.end, span.begin);
}

void DeadlockProof::addRendezvous(ArrayRef<Span> members) {
  EventGraph::Event met = events.addEvent();
  labels.push_back(labels[members.front().begin]);
  for (Span member : members) {
    events.addEdge(member.begin, met);
    events.addEdge(met, member.end);
  }
}

void DeadlockProof::addOp(SchedulableOpInterface op) {
  SmallVector<Span> members;
  for (unsigned rankClass : classes->ofGroup.lookup(op.getRanksAttr())) {
    Span span{rankClass, events.addEvent(), events.addEvent()};
    labels.append(2, {op, rankClass});
    addOrder(op, span);
    members.push_back(span);
  }
  bool isMessage = isa<SendOp, RecvOp>(op.getOperation());
  if (isa<CollectiveOpInterface>(op.getOperation()) && !isMessage &&
      members.size() > 1)
    addRendezvous(members);
  spans[op] = std::move(members);
}

/// The classes of the two sides, position by position.
DeadlockProof::ClassPairs DeadlockProof::pairClasses(SendOp send) const {
  ClassPairs pairs;
  for (auto [from, to] : llvm::zip_equal(*send.getRanks(), send.getTo()))
    pairs.insert({classes->ofRank.lookup(from), classes->ofRank.lookup(to)});
  return pairs;
}

static Span getSpan(ArrayRef<Span> spans, unsigned rankClass) {
  return *llvm::find_if(spans,
                        [&](Span span) { return span.rankClass == rankClass; });
}

void DeadlockProof::addMessages(EventGraph &graph, bool sendsWait) const {
  for (const auto &[op, sent] : spans) {
    auto send = dyn_cast<SendOp>(op);
    if (!send)
      continue;
    ArrayRef<Span> received =
        spans.find(*send.getMessage().user_begin())->second;
    for (auto [from, to] : pairClasses(send)) {
      Span sending = getSpan(sent, from), receiving = getSpan(received, to);
      graph.addEdge(sending.begin, receiving.end);
      if (sendsWait)
        graph.addEdge(receiving.begin, sending.end);
    }
  }
}

/// Which of the things that a program does an operation is.
static std::string describeOp(Operation *op) {
  if (auto node = dyn_cast<ComputeOp>(op))
    return describe(node);
  std::string name = op->getName().stripDialect().str();
  if (auto send = dyn_cast<SendOp>(op); send && send.getTagsAttr())
    return name + " " + describe(send.getTagsAttr());
  if (auto recv = dyn_cast<RecvOp>(op); recv && recv.getTagsAttr())
    return name + " " + describe(recv.getTagsAttr());
  return name;
}

/// As short as a cell of a grid should be: `F MB=1 stage=0`.
static std::string labelOp(Operation *op) {
  if (auto node = dyn_cast<ComputeOp>(op))
    return (stringifyPassKind(node.getPass()) + describeShortly(node.getTags()))
        .str();
  std::string name = op->getName().stripDialect().str();
  if (auto send = dyn_cast<SendOp>(op); send && send.getTagsAttr())
    return name + describeShortly(send.getTagsAttr());
  if (auto recv = dyn_cast<RecvOp>(op); recv && recv.getTagsAttr())
    return name + describeShortly(recv.getTagsAttr());
  return name;
}

/// What each class does, in the order of the block, with an arrow at each
/// operation that is stuck.
std::string DeadlockProof::drawGrid(const Stuck &stuck) const {
  schedule::Grid grid;
  grid.ranks.assign(classes->firstRank.begin(), classes->firstRank.end());
  grid.rows.resize(grid.ranks.size());
  std::vector<schedule::Mark> marks;
  for (const auto &[op, members] : spans)
    for (Span member : members) {
      std::vector<std::string> &row = grid.rows[member.rankClass];
      if (stuck.contains({op, member.rankClass}))
        marks.push_back({{member.rankClass, row.size()}, labelOp(op)});
      row.push_back(labelOp(op));
    }
  return schedule::print(grid, marks);
}

LogicalResult DeadlockProof::report(ArrayRef<EventGraph::Event> cycle,
                                    bool sendsWait) {
  Stuck stuck;
  for (EventGraph::Event event : cycle)
    stuck.insert(labels[event]);
  InFlightDiagnostic error =
      mlir::emitError(graph.getLoc(),
                      "expected an order without deadlock, got ")
      << stuck.size() << " operations that wait for each other"
      << (sendsWait ? " where a send waits for its receiver" : "");
  for (auto [i, entry] : llvm::enumerate(stuck)) {
    auto [op, rankClass] = entry;
    auto [before, otherClass] = stuck[i == 0 ? stuck.size() - 1 : i - 1];
    error.attachNote(op->getLoc())
        << "rank " << classes->firstRank[rankClass] << ": " << describeOp(op)
        << " waits for rank " << classes->firstRank[otherClass] << ": "
        << describeOp(before);
  }
  error.attachNote() << "the order of each rank:\n" << drawGrid(stuck);
  return error;
}

LogicalResult DeadlockProof::run() {
  for (Operation &op : graph.getBody().front()) {
    llvm::SmallSetVector<Operation *, 8> producers;
    for (Value operand : op.getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (isa<SchedulableOpInterface>(producer))
        producers.insert(producer);
      else
        producers.insert_range(behind[producer]);
    }
    behind[&op] = producers.takeVector();
    if (auto schedulable = dyn_cast<SchedulableOpInterface>(op))
      addOp(schedulable);
  }
  for (bool sendsWait : {false, true}) {
    EventGraph withMessages = events;
    addMessages(withMessages, sendsWait);
    std::vector<EventGraph::Event> cycle = withMessages.findCycle();
    if (!cycle.empty())
      return report(cycle, sendsWait);
  }
  return success();
}

LogicalResult piper::proveNoDeadlock(GraphOp graph) {
  return DeadlockProof(graph).run();
}
