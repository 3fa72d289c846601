// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RankOrder.cpp - what happens before what, over all ranks -----------===//

#include "passes/plan/RankOrder.h"

using namespace mlir;
using namespace piper;

void RankOrder::addEdge(unsigned from, unsigned to, StringAttr when) {
  successors[from].push_back({to, when});
}

static bool isCollective(Operation *op) {
  return isa<PlanAllReduceOp, PlanReduceScatterOp, PlanAllGatherOp,
             PlanBroadcastOp, PlanAllToAllOp>(op);
}

void RankOrder::build() {
  isBuilt = true;
  auto addNode = [&] {
    successors.emplace_back();
    return unsigned(successors.size() - 1);
  };
  // The messages of a channel between two ranks, and the meetings of a group.
  using Key = std::pair<Attribute, unsigned>;
  std::map<std::pair<const void *, unsigned>, SmallVector<unsigned>> sends,
      receives, meetings;
  auto getKey = [](Key key) {
    return std::pair<const void *, unsigned>(key.first.getAsOpaquePointer(),
                                             key.second);
  };
  struct Message {
    int64_t rank;
    ActionOpInterface action;
    Key key;
    unsigned number;
  };
  SmallVector<Message> sent, released;
  for (EntryOp entry : entries)
    for (int64_t rank : entry->getParentOfType<PlanOp>().getRanks()) {
      llvm::DenseMap<Attribute, unsigned> last; // by stream
      llvm::DenseMap<int64_t, unsigned> records;
      std::map<std::pair<const void *, unsigned>, unsigned> met;
      for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
        unsigned node = addNode(), end = node;
        auto found = last.find(action.getStreamAttr());
        if (found != last.end())
          addEdge(found->second, node);
        if (auto record = dyn_cast<RecordOp>(*action))
          records[record.getEvent()] = node;
        if (auto wait = dyn_cast<WaitOp>(*action))
          if (auto event = records.find(wait.getEvent());
              event != records.end())
            addEdge(event->second, node);
        auto name = action->getAttrOfType<FlatSymbolRefAttr>("communicator");
        CommunicatorOp communicator =
            name ? tables.lookupCommunicator(name) : CommunicatorOp();
        auto position =
            communicator ? communicator.findPosition(rank) : std::nullopt;
        if (position) {
          Key key{name, position->first};
          if (isa<PlanSendOp>(*action)) {
            auto &all = sends[getKey(key)];
            sent.push_back({rank, action, key, unsigned(all.size())});
            all.push_back(node);
          } else if (isa<PlanRecvOp>(*action)) {
            receives[getKey(key)].push_back(node);
          } else if (auto release = dyn_cast<ReleaseOp>(*action)) {
            released.push_back(
                {rank, action, key, unsigned(release.getMessage())});
          } else if (isCollective(action) && !isa<PlanBroadcastOp>(*action)) {
            auto &all = meetings[getKey(key)];
            unsigned number = met[getKey(key)]++;
            if (number == all.size())
              all.push_back(addNode());
            addEdge(node, all[number], action.getWhenAttr());
            // Its own end is there whether or not the others take part.
            end = addNode();
            addEdge(node, end);
            addEdge(all[number], end, action.getWhenAttr());
          }
        }
        last[action.getStreamAttr()] = end;
        begins[rank][action] = node;
        ends[rank][action] = end;
      }
    }
  for (Message &message : sent) {
    ArrayRef<unsigned> theirs = receives[getKey(message.key)];
    Operation *send = message.action;
    if (message.number >= theirs.size()) {
      ends[message.rank].erase(send);
      continue;
    }
    addEdge(begins[message.rank][send], theirs[message.number],
            message.action.getWhenAttr());
    ends[message.rank][send] = theirs[message.number];
  }
  for (Message &message : released) {
    ArrayRef<unsigned> theirs = receives[getKey(message.key)];
    if (message.number < theirs.size())
      addEdge(theirs[message.number], begins[message.rank][message.action],
              message.action.getWhenAttr());
  }
}

bool RankOrder::isReachable(unsigned from, unsigned to, StringAttr when) {
  std::vector<bool> seen(successors.size(), false);
  SmallVector<unsigned> open{from};
  while (!open.empty()) {
    unsigned node = open.pop_back_val();
    for (const Edge &edge : successors[node]) {
      if ((edge.when && edge.when != when) || seen[edge.to])
        continue;
      if (edge.to == to)
        return true;
      seen[edge.to] = true;
      open.push_back(edge.to);
    }
  }
  return false;
}

bool RankOrder::isOrdered(ActionOpInterface before, ActionOpInterface after) {
  if (!isBuilt)
    build();
  // Under a condition that both have, so have what orders them.
  StringAttr when = before.getWhenAttr() == after.getWhenAttr()
                        ? before.getWhenAttr()
                        : StringAttr();
  auto plan = after->getParentOfType<PlanOp>();
  return llvm::all_of(plan.getRanks(), [&](int64_t rank) {
    auto end = ends[rank].find(before);
    return end != ends[rank].end() &&
           isReachable(end->second, begins[rank][after], when);
  });
}
