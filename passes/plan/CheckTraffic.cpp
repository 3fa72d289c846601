// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CheckTraffic.cpp - messages and collectives meet -------------------===//

#include "passes/plan/Checks.h"
#include "passes/plan/DataFlow.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/Sequence.h"
#include <queue>

using namespace mlir;
using namespace piper;

static bool isCollective(Operation *op) {
  return isa<PlanAllReduceOp, PlanReduceScatterOp, PlanAllGatherOp,
             PlanBroadcastOp, PlanAllToAllOp>(op);
}

static FlatSymbolRefAttr getCommunicator(Operation *op) {
  return op->getAttrOfType<FlatSymbolRefAttr>("communicator");
}

/// `ranks [0, 1]`, `ranks [0, 1, 2, 3, …, 63]`.
static std::string describeRanks(ArrayRef<int64_t> ranks) {
  std::string text = "ranks [";
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(ranks.take_front(4), os);
  if (ranks.size() > 4)
    os << (ranks.size() > 5 ? ", …, " : ", ") << ranks.back();
  os << ']';
  return text;
}

/// `all_reduce "all_reduce bucket0" of ranks [0, 1] on @dp_stream`.
static std::string describe(ActionOpInterface action, ArrayRef<int64_t> ranks) {
  std::string text = action->getName().getStringRef().rsplit('.').second.str();
  llvm::raw_string_ostream os(text);
  if (action.getLabelAttr())
    os << ' ' << action.getLabelAttr();
  os << " of " << describeRanks(ranks) << " on " << action.getStreamAttr();
  return text;
}

Traffic::Traffic(ArrayRef<EntryOp> entries, const PlanTables &tables)
    : tables(tables) {
  for (EntryOp entry : entries) {
    PerClass one;
    one.entry = entry;
    one.ranks = entry->getParentOfType<PlanOp>().getRanks();
    for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
      unsigned number = one.actions.size();
      one.actions.push_back(action);
      if (isa<PlanSendOp>(*action))
        one.sends[getCommunicator(action)].push_back(number);
      else if (isa<PlanRecvOp>(*action))
        one.receives[getCommunicator(action)].push_back(number);
      else if (isCollective(action))
        one.collectives[getCommunicator(action)].push_back(number);
    }
    for (int64_t rank : one.ranks)
      classOfRank[rank] = classes.size();
    classes.push_back(std::move(one));
  }
}

Traffic::PerClass *Traffic::getClassOf(int64_t rank) {
  auto found = classOfRank.find(rank);
  return found == classOfRank.end() ? nullptr : &classes[found->second];
}

Traffic::PerClass *Traffic::getPeer(PerClass &one, FlatSymbolRefAttr channel,
                                    unsigned side) {
  CommunicatorOp communicator = tables.lookupCommunicator(channel);
  if (!communicator)
    return nullptr;
  auto position = communicator.findPosition(one.ranks.front());
  if (!position || communicator.getGroup(position->first).size() != 2 ||
      position->second == side)
    return nullptr;
  return getClassOf(communicator.getGroup(position->first)[side]);
}

//===----------------------------------------------------------------------===//
// Matching
//===----------------------------------------------------------------------===//

/// Whether a receive gets the message that the graph says, where it is known.
static bool isMessageOf(ActionOpInterface a, ActionOpInterface b) {
  if (isa<PlanRecvOp>(*b))
    std::swap(a, b);
  auto sources = a->getAttrOfType<DenseI64ArrayAttr>(kSourcesAttr);
  return !sources || sources.empty() || !b.getPositionAttr() ||
         sources[0] == b.getPositionAttr().getInt();
}

LogicalResult Traffic::checkMessages(PerClass &one) {
  auto check = [&](auto &mine, unsigned peerSide, auto getTheirs,
                   StringRef counterpart) -> LogicalResult {
    for (unsigned i = 0, e = one.actions.size(); i < e; ++i) {
      ActionOpInterface action = one.actions[i];
      FlatSymbolRefAttr channel = getCommunicator(action);
      auto found = channel ? mine.find(channel) : mine.end();
      if (found == mine.end())
        continue;
      auto *place = llvm::lower_bound(found->second, i);
      if (place == found->second.end() || *place != i)
        continue;
      size_t number = place - found->second.begin();
      PerClass *peer = getPeer(one, channel, peerSide);
      ArrayRef<unsigned> theirs;
      if (peer)
        theirs = getTheirs(*peer, channel);
      if (number >= theirs.size())
        return action->emitOpError("expected a ")
               << counterpart << " for message " << number << " of " << channel
               << " at " << describeRanks(one.ranks);
      ActionOpInterface other = peer->actions[theirs[number]];
      bool isSame = action->getAttr("bytes") == other->getAttr("bytes") &&
                    action.getWhenAttr() == other.getWhenAttr();
      if (isSame && isMessageOf(action, other))
        continue;
      InFlightDiagnostic error =
          action->emitOpError("expected message ")
          << number << " of " << channel
          << (isSame ? " to be the one that the receive "
                       "is for"
                     : " to have equal bytes and condition "
                       "at both ends");
      error.attachNote(other.getLoc())
          << "the other end: " << describe(other, peer->ranks);
      return error;
    }
    return success();
  };
  auto receives = [](PerClass &peer, Attribute channel) -> ArrayRef<unsigned> {
    return peer.receives[channel];
  };
  auto sends = [](PerClass &peer, Attribute channel) -> ArrayRef<unsigned> {
    return peer.sends[channel];
  };
  if (failed(check(one.sends, 1, receives, "receive")))
    return failure();
  return check(one.receives, 0, sends, "send");
}

/// Attributes that members must agree on.
static bool isSameCollective(Operation *a, Operation *b) {
  if (a->getName() != b->getName())
    return false;
  // Members that stand at different operations of the graph would mix values.
  for (StringRef name :
       {"type", "count", "reduction", "root", "when", "position"})
    if (a->getAttr(name) != b->getAttr(name))
      return false;
  return true;
}

LogicalResult Traffic::checkCollectives(PerClass &one) {
  for (auto &[communicator, numbers] : one.collectives) {
    CommunicatorOp op =
        tables.lookupCommunicator(cast<FlatSymbolRefAttr>(communicator));
    auto position = op ? op.findPosition(one.ranks.front()) : std::nullopt;
    if (!position)
      return one.actions[numbers.front()]->emitOpError("expected a member of ")
             << communicator << ", got " << describeRanks(one.ranks);
    // Comparing with the first member's class compares all with all.
    PerClass *first = getClassOf(op.getGroup(position->first).front());
    ArrayRef<unsigned> theirs;
    if (first)
      theirs = first->collectives[communicator];
    for (size_t i = 0; i < std::max(numbers.size(), theirs.size()); ++i) {
      ActionOpInterface mine =
          i < numbers.size() ? one.actions[numbers[i]] : ActionOpInterface();
      ActionOpInterface other =
          i < theirs.size() ? first->actions[theirs[i]] : ActionOpInterface();
      if (mine && other && isSameCollective(mine, other))
        continue;
      ActionOpInterface where = mine ? mine : other;
      InFlightDiagnostic error =
          where->emitOpError("expected all members of ")
          << communicator << " to issue the same collectives in one order, "
          << describeRanks(one.ranks) << " and "
          << describeRanks(first ? first->ranks : one.ranks)
          << " differ in number " << i;
      if (mine && other)
        error.attachNote(other.getLoc()) << describe(other, first->ranks);
      return error;
    }
  }
  return success();
}

LogicalResult Traffic::checkStreams(PerClass &one) {
  for (auto *uses : {&one.sends, &one.receives, &one.collectives})
    for (auto &[communicator, numbers] : *uses)
      for (unsigned number : numbers) {
        ActionOpInterface first = one.actions[numbers.front()];
        ActionOpInterface action = one.actions[number];
        if (action.getStreamAttr() == first.getStreamAttr())
          continue;
        InFlightDiagnostic error =
            action->emitOpError("expected one stream for ")
            << communicator << ", got " << first.getStreamAttr() << " and "
            << action.getStreamAttr();
        error.attachNote(first.getLoc()) << "first used here";
        return error;
      }
  return success();
}

LogicalResult Traffic::checkMatching() {
  for (PerClass &one : classes)
    if (failed(checkStreams(one)) || failed(checkMessages(one)) ||
        failed(checkCollectives(one)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Cycles
//===----------------------------------------------------------------------===//

namespace {
/// Actions as nodes; those that begin and end together are one.
class OrderGraph {
public:
  explicit OrderGraph(unsigned numNodes) : parents(numNodes) {
    for (unsigned i = 0; i < numNodes; ++i)
      parents[i] = i;
  }
  void join(unsigned a, unsigned b) {
    a = find(a);
    b = find(b);
    parents[std::max(a, b)] = std::min(a, b);
  }
  unsigned find(unsigned node) {
    while (parents[node] != node)
      node = parents[node] = parents[parents[node]];
    return node;
  }
  void addEdge(unsigned before, unsigned after) {
    edges.push_back({before, after});
  }

  /// Nodes of a cycle in order, empty where there is none.
  SmallVector<unsigned> findCycle();

private:
  std::vector<unsigned> parents;
  std::vector<std::pair<unsigned, unsigned>> edges;
};
} // namespace

SmallVector<unsigned> OrderGraph::findCycle() {
  size_t size = parents.size();
  std::vector<SmallVector<unsigned, 2>> successors(size), predecessors(size);
  std::vector<unsigned> waiting(size, 0);
  for (auto [before, after] : edges) {
    unsigned from = find(before), to = find(after);
    successors[from].push_back(to);
    predecessors[to].push_back(from);
    ++waiting[to];
  }
  std::vector<unsigned> ready;
  for (unsigned i = 0; i < size; ++i)
    if (find(i) == i && waiting[i] == 0)
      ready.push_back(i);
  while (!ready.empty()) {
    unsigned node = ready.back();
    ready.pop_back();
    for (unsigned next : successors[node])
      if (--waiting[next] == 0)
        ready.push_back(next);
  }
  auto stuck = llvm::find_if(waiting, [](unsigned n) { return n > 0; });
  if (stuck == waiting.end())
    return {};
  // Backwards from a node that waits, one meets a node twice.
  SmallVector<unsigned> path;
  std::vector<int64_t> place(size, -1);
  unsigned node = stuck - waiting.begin();
  while (place[node] < 0) {
    place[node] = path.size();
    path.push_back(node);
    node = *llvm::find_if(predecessors[node],
                          [&](unsigned p) { return waiting[p] > 0; });
  }
  SmallVector<unsigned> cycle(path.begin() + place[node], path.end());
  std::reverse(cycle.begin(), cycle.end());
  std::rotate(cycle.begin(), llvm::min_element(cycle), cycle.end());
  return cycle;
}

LogicalResult Traffic::checkAcyclic(bool sendsWait) {
  SmallVector<unsigned> bases;
  std::vector<std::pair<PerClass *, ActionOpInterface>> nodes;
  for (PerClass &one : classes) {
    bases.push_back(nodes.size());
    for (ActionOpInterface action : one.actions)
      nodes.push_back({&one, action});
  }
  auto getBase = [&](PerClass *one) { return bases[one - classes.data()]; };
  OrderGraph graph(nodes.size());
  for (PerClass &one : classes) {
    unsigned base = getBase(&one);
    llvm::DenseMap<Attribute, unsigned> last; // by stream
    llvm::DenseMap<int64_t, unsigned> records;
    llvm::DenseMap<Attribute, unsigned> received, issued;
    for (unsigned i = 0, e = one.actions.size(); i < e; ++i) {
      ActionOpInterface action = one.actions[i];
      auto [it, isFirst] = last.try_emplace(action.getStreamAttr(), i);
      if (!isFirst)
        graph.addEdge(base + it->second, base + i);
      it->second = i;
      if (auto record = dyn_cast<RecordOp>(*action))
        records[record.getEvent()] = i;
      if (auto wait = dyn_cast<WaitOp>(*action)) {
        auto found = records.find(wait.getEvent());
        if (found != records.end())
          graph.addEdge(base + found->second, base + i);
      }
      FlatSymbolRefAttr communicator = getCommunicator(action);
      if (isa<PlanRecvOp>(*action)) {
        PerClass *peer = getPeer(one, communicator, 0);
        unsigned send =
            getBase(peer) + peer->sends[communicator][received[communicator]++];
        if (sendsWait)
          graph.join(send, base + i);
        else
          graph.addEdge(send, base + i);
      }
      if (auto release = dyn_cast<ReleaseOp>(*action)) {
        PerClass *peer = getPeer(one, communicator, 1);
        if (!peer ||
            release.getMessage() >= peer->receives[communicator].size())
          return action->emitOpError("expected a message that is received");
        graph.addEdge(getBase(peer) +
                          peer->receives[communicator][release.getMessage()],
                      base + i);
      }
      if (!isCollective(action))
        continue;
      CommunicatorOp op = tables.lookupCommunicator(communicator);
      auto position = op.findPosition(one.ranks.front());
      unsigned number = issued[communicator]++;
      for (int64_t rank : op.getGroup(position->first)) {
        PerClass *peer = getClassOf(rank);
        if (peer && peer != &one)
          graph.join(base + i,
                     getBase(peer) + peer->collectives[communicator][number]);
      }
    }
  }

  SmallVector<unsigned> cycle = graph.findCycle();
  if (cycle.empty())
    return success();
  auto [owner, first] = nodes[cycle.front()];
  InFlightDiagnostic error = first->emitOpError("deadlock")
                             << (sendsWait ? " if sends wait for receives" : "")
                             << ": " << describe(first, owner->ranks)
                             << " waits for itself";
  for (unsigned node : llvm::reverse(cycle)) {
    if (isa<RecordOp, WaitOp>(*nodes[node].second))
      continue;
    error.attachNote(nodes[node].second.getLoc())
        << "waits for "
        << describe(nodes[node].second, nodes[node].first->ranks);
  }
  return error;
}
