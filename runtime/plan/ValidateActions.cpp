// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of the actions of each class, and of what the classes do together.
#include "Validator.h"

#include <algorithm>

namespace piper::plan {

bool Validator::checkCommunicator(uint64_t communicator) {
  return communicator < plan.communicators.size() ||
         fail("communicator " + std::to_string(communicator) +
              " does not exist");
}

Validator::Member Validator::member(uint64_t communicator,
                                    uint32_t rank) const {
  auto it = members[communicator].find(rank);
  return it == members[communicator].end() ? Member() : it->second;
}

bool Validator::maxPosition(uint32_t cls, int64_t communicator,
                            uint32_t &position) {
  if (communicator < 0 || !checkCommunicator(uint64_t(communicator)))
    return fail("expected a communicator, got " + std::to_string(communicator));
  uint64_t key = uint64_t(cls) << 32 | uint64_t(communicator);
  auto known = maxPositions.find(key);
  if (known != maxPositions.end()) {
    position = known->second;
    return true;
  }
  position = 0;
  for (uint32_t rank : plan.classes[cls].ranks) {
    Member member = this->member(uint64_t(communicator), rank);
    if (!member.groupSize)
      return fail("rank " + std::to_string(rank) +
                  " is not a member of communicator '" +
                  plan.communicators[communicator].name + "'");
    position = std::max(position, member.position);
  }
  maxPositions.emplace(key, position);
  return true;
}

bool Validator::checkAddress(const Address &address, uint32_t cls,
                             uint32_t stream, uint64_t bytes,
                             uint64_t alignment) {
  const RankClass &current = plan.classes[cls];
  uint64_t limit = 0;
  switch (address.space) {
  case Space::Arena:
    limit = current.arenaBytes;
    break;
  case Space::State:
    limit = current.stateBytes;
    break;
  case Space::Scalar:
    limit = current.scalarBytes;
    break;
  case Space::Workspace:
    limit = current.streams[stream].workspaceBytes;
    break;
  case Space::Input:
    if (address.index >= plan.inputs.size())
      return fail("input " + std::to_string(address.index) + " does not exist");
    limit =
        plan.inputs[address.index].rows * plan.inputs[address.index].rowBytes;
    break;
  }
  if (address.space != Space::Input && address.index != 0)
    return fail("expected index 0 outside the input space");
  uint32_t position = 0;
  if (address.communicator != -1) {
    if (!maxPosition(cls, address.communicator, position))
      return false;
  } else if (address.stride != 0) {
    return fail("expected a communicator for stride " +
                std::to_string(address.stride));
  }
  uint64_t end =
      addSat(addSat(address.offset, bytes), mulSat(position, address.stride));
  if (end > limit)
    return fail("address ends at " + std::to_string(end) + ", beyond the " +
                std::to_string(limit) + " bytes of its space");
  if (address.offset % alignment != 0 || address.stride % alignment != 0)
    return fail("address at " + std::to_string(address.offset) +
                " is not aligned to " + std::to_string(alignment) + " bytes");
  return true;
}

bool Validator::checkOperands(const Action &action, size_t addresses,
                              size_t imm) {
  if (action.addresses.size() != addresses)
    return fail("expected " + std::to_string(addresses) + " addresses, got " +
                std::to_string(action.addresses.size()));
  if (action.imm.size() != imm)
    return fail("expected " + std::to_string(imm) + " immediates, got " +
                std::to_string(action.imm.size()));
  return true;
}

bool Validator::checkStream(int64_t &used, uint32_t stream, const char *what) {
  if (used == -1)
    used = stream;
  return used == stream ||
         fail(std::string("expected all ") + what +
              " of a communicator on one stream, got streams " +
              std::to_string(used) + " and " + std::to_string(stream));
}

bool Validator::checkLaunch(const Action &action, uint32_t cls,
                            uint32_t stream) {
  if (action.imm.size() != 1 || action.imm[0] >= plan.kernels.size())
    return fail("expected the number of one of " +
                std::to_string(plan.kernels.size()) + " kernels");
  const Kernel &kernel = plan.kernels[action.imm[0]];
  if (!checkOperands(action, kernel.pointerBytes.size(), 1))
    return false;
  uint64_t workspace = plan.classes[cls].streams[stream].workspaceBytes;
  if (kernel.workspaceBytes > workspace)
    return fail("kernel '" + kernel.name + "' needs a workspace of " +
                std::to_string(kernel.workspaceBytes) +
                " bytes, the stream has " + std::to_string(workspace));
  for (size_t i = 0; i < action.addresses.size(); ++i) {
    const Address &address = action.addresses[i];
    if (!checkAddress(address, cls, stream, kernel.pointerBytes[i], 1))
      return false;
    if (address.space == Space::Workspace &&
        address.offset < kernel.workspaceBytes)
      return fail("argument " + std::to_string(i) +
                  " lies in the kernel's own workspace");
  }
  return true;
}

bool Validator::checkMessage(const Action &action, uint32_t cls,
                             uint32_t stream, Traffic &traffic) {
  bool isSend = action.opcode == Opcode::Send;
  if (!checkOperands(action, 1, 2))
    return false;
  const Communicator &channel = plan.communicators[action.imm[0]];
  for (uint32_t rank : plan.classes[cls].ranks) {
    Member member = this->member(action.imm[0], rank);
    if (member.groupSize != 2 || member.position != (isSend ? 0u : 1u))
      return fail("rank " + std::to_string(rank) + " is not the " +
                  (isSend ? "sender" : "receiver") + " of a pair of channel '" +
                  channel.name + "'");
  }
  const Address &address = action.addresses[0];
  if (address.space == Space::Input ||
      (isSend && address.space == Space::Workspace))
    return fail("expected an address in arena, state or scalar memory");
  std::string signature =
      std::to_string(action.imm[1]) + " bytes" +
      (action.predicate ? ", predicate " + std::to_string(action.predicate)
                        : "");
  if (isSend) {
    traffic.sends.push_back(signature);
    if (!checkStream(traffic.sendStream, stream, "sends"))
      return false;
  } else {
    traffic.receives.push_back(signature);
    if (!checkStream(traffic.receiveStream, stream, "receives"))
      return false;
  }
  return checkAddress(address, cls, stream, action.imm[1], 1);
}

bool Validator::checkCollective(const Action &action, uint32_t cls,
                                uint32_t stream, Traffic &traffic) {
  if (!checkOperands(action, 2, 5))
    return false;
  if (action.imm[1] >= kNumDTypes || action.imm[3] >= kNumReductions)
    return fail("expected a known dtype and reduction");
  uint32_t position = 0;
  if (!maxPosition(cls, int64_t(action.imm[0]), position))
    return false;
  CollectiveOperands operands = collectiveOperands(action);
  uint64_t largest = 0;
  for (uint32_t rank : plan.classes[cls].ranks) {
    uint32_t size = member(operands.communicator, rank).groupSize;
    if (action.imm[4] >= size)
      return fail("root " + std::to_string(action.imm[4]) +
                  " is not a position in a group of " + std::to_string(size));
    largest = std::max<uint64_t>(largest, size);
  }
  for (size_t i = 0; i < 2; ++i)
    if (!checkAddress(action.addresses[i], cls, stream,
                      extent(plan, action, i, largest),
                      byteWidth(operands.dtype)))
      return false;
  for (const Address &address : action.addresses)
    if (address.space == Space::Input || address.space == Space::Workspace)
      return fail("expected an address in arena, state or scalar memory");
  if (!checkOverlap(action, cls) ||
      !checkStream(traffic.collectiveStream, stream, "collectives"))
    return false;
  traffic.collectives.push_back(
      std::string(name(action.opcode)) + " " + name(operands.reduction) +
      " of " + std::to_string(operands.count) + " " + name(operands.dtype) +
      ", root " + std::to_string(operands.root) +
      (action.predicate ? ", predicate " + std::to_string(action.predicate)
                        : ""));
  return true;
}

bool Validator::checkOverlap(const Action &action, uint32_t cls) {
  CollectiveOperands operands = collectiveOperands(action);
  if (operands.src.space != operands.dst.space)
    return true;
  uint64_t bytes = operands.count * byteWidth(operands.dtype);
  for (uint32_t rank : plan.classes[cls].ranks) {
    Member member = this->member(operands.communicator, rank);
    auto begin = [&](const Address &address) {
      uint64_t position =
          address.communicator < 0
              ? 0
              : this->member(uint64_t(address.communicator), rank).position;
      return address.offset + position * address.stride;
    };
    uint64_t src = begin(operands.src), dst = begin(operands.dst);
    bool disjoint = src + extent(plan, action, 0, member.groupSize) <= dst ||
                    dst + extent(plan, action, 1, member.groupSize) <= src;
    uint64_t own = member.position * bytes;
    bool inPlace = false;
    switch (action.opcode) {
    case Opcode::ReduceScatter:
      inPlace = dst == src + own;
      break;
    case Opcode::AllGather:
      inPlace = src == dst + own;
      break;
    case Opcode::AllToAll:
      break;
    default:
      inPlace = src == dst;
    }
    if (!disjoint && !inPlace)
      return fail("source at " + std::to_string(src) + " and destination at " +
                  std::to_string(dst) + " of rank " + std::to_string(rank) +
                  " overlap other than in place");
  }
  return true;
}

bool Validator::checkAction(const Action &action, uint32_t cls, uint32_t stream,
                            ClassTraffic &traffic) {
  uint32_t flag = action.predicate & ~kPredicateNegated;
  if (action.predicate != 0 && (flag == 0 || flag > plan.flags.size()))
    return fail("predicate refers to flag " +
                std::to_string(int64_t(flag) - 1) + " of " +
                std::to_string(plan.flags.size()));
  switch (action.opcode) {
  case Opcode::Launch:
    return checkLaunch(action, cls, stream);
  case Opcode::Copy:
    return checkOperands(action, 2, 1) &&
           checkAddress(action.addresses[0], cls, stream, action.imm[0], 1) &&
           checkAddress(action.addresses[1], cls, stream, action.imm[0], 1);
  case Opcode::FillZero:
    return checkOperands(action, 1, 1) &&
           checkAddress(action.addresses[0], cls, stream, action.imm[0], 1);
  case Opcode::Accumulate: {
    if (!checkOperands(action, 2, 3))
      return false;
    uint64_t mode = action.imm[2];
    if (action.imm[0] >= kNumDTypes || DType(action.imm[0]) == DType::I1)
      return fail("expected a dtype that adds");
    if (mode < kAccumulateWrite && mode >= plan.flags.size())
      return fail("mode refers to flag " + std::to_string(mode) + " of " +
                  std::to_string(plan.flags.size()));
    uint64_t width = byteWidth(DType(action.imm[0]));
    uint64_t bytes = mulSat(action.imm[1], width);
    return checkAddress(action.addresses[0], cls, stream, bytes, width) &&
           checkAddress(action.addresses[1], cls, stream, bytes, width);
  }
  case Opcode::Record:
  case Opcode::Wait:
    if (!checkOperands(action, 0, 1))
      return false;
    return action.imm[0] < plan.classes[cls].numEvents ||
           fail("event " + std::to_string(action.imm[0]) + " of " +
                std::to_string(plan.classes[cls].numEvents));
  case Opcode::Send:
  case Opcode::Recv:
    if (!checkOperands(action, 1, 2) || !checkCommunicator(action.imm[0]))
      return false;
    return checkMessage(action, cls, stream, traffic[uint32_t(action.imm[0])]);
  case Opcode::Release:
    return checkOperands(action, 0, 2) && checkCommunicator(action.imm[0]);
  case Opcode::AllReduce:
  case Opcode::ReduceScatter:
  case Opcode::AllGather:
  case Opcode::Broadcast:
  case Opcode::AllToAll:
    if (!checkOperands(action, 2, 5) || !checkCommunicator(action.imm[0]))
      return false;
    return checkCollective(action, cls, stream,
                           traffic[uint32_t(action.imm[0])]);
  }
  return fail("unknown opcode");
}

bool Validator::checkEvents(const StreamActions &streams) {
  // By event; no larger than the plan, whatever number of events it claims.
  std::unordered_map<uint64_t, std::pair<size_t, size_t>> records;
  for (size_t s = 0; s < streams.size(); ++s)
    for (size_t i = 0; i < streams[s].size(); ++i) {
      const Action &action = streams[s][i];
      if (action.opcode != Opcode::Record)
        continue;
      if (!records.try_emplace(action.imm[0], s, i).second)
        return fail("event " + std::to_string(action.imm[0]) +
                    " is recorded twice");
    }
  for (size_t s = 0; s < streams.size(); ++s)
    for (size_t i = 0; i < streams[s].size(); ++i) {
      const Action &action = streams[s][i];
      if (action.opcode != Opcode::Wait)
        continue;
      auto record = records.find(action.imm[0]);
      if (record == records.end())
        return fail("event " + std::to_string(action.imm[0]) +
                    " is waited for and never recorded");
      if (record->second.first == s && record->second.second > i)
        return fail("event " + std::to_string(action.imm[0]) +
                    " is waited for before its own stream records it");
    }
  return true;
}

bool Validator::checkReleases(const StreamActions &streams,
                              ClassTraffic &traffic) {
  for (const std::vector<Action> &actions : streams)
    for (const Action &action : actions) {
      if (action.opcode != Opcode::Release)
        continue;
      size_t sends = traffic[uint32_t(action.imm[0])].sends.size();
      if (action.imm[1] >= sends)
        return fail("release of message " + std::to_string(action.imm[1]) +
                    " of channel '" + plan.communicators[action.imm[0]].name +
                    "', which sends " + std::to_string(sends));
    }
  return true;
}

bool Validator::checkEntry(const std::string &entry, uint32_t cls,
                           ClassTraffic &traffic) {
  const RankClass &current = plan.classes[cls];
  const StreamActions &streams = current.entries.at(entry);
  std::string place =
      "class " + std::to_string(cls) + ", entry '" + entry + "'";
  context = place;
  if (streams.size() != current.streams.size())
    return fail("expected " + std::to_string(current.streams.size()) +
                " streams, got " + std::to_string(streams.size()));
  for (uint32_t s = 0; s < streams.size(); ++s)
    for (size_t i = 0; i < streams[s].size(); ++i) {
      const Action &action = streams[s][i];
      if (!checkAction(action, cls, s, traffic)) {
        error = place + ", stream '" + current.streams[s].name + "', action " +
                std::to_string(i) + " (" + name(action.opcode) +
                (action.label.empty() ? "" : " '" + action.label + "'") + ")" +
                error.substr(place.size());
        return false;
      }
    }
  return checkEvents(streams) && checkReleases(streams, traffic);
}

bool Validator::checkEntries() {
  std::set<std::string> entries;
  for (const RankClass &current : plan.classes)
    for (const auto &entry : current.entries)
      entries.insert(entry.first);
  for (const std::string &entry : entries) {
    std::vector<ClassTraffic> traffic(plan.classes.size());
    for (uint32_t c = 0; c < plan.classes.size(); ++c)
      if (plan.classes[c].entries.count(entry) &&
          !checkEntry(entry, c, traffic[c]))
        return false;
    if (!checkMatching(entry, traffic))
      return false;
  }
  return true;
}

bool Validator::checkMatching(const std::string &entry,
                              const std::vector<ClassTraffic> &traffic) {
  static const Traffic nothing;
  auto of = [&](uint32_t rank, uint32_t communicator) -> const Traffic & {
    const ClassTraffic &own = traffic[rankClass[rank]];
    auto it = own.find(communicator);
    return it == own.end() ? nothing : it->second;
  };
  auto differ = [&](const std::vector<std::string> &a, uint32_t rankA,
                    const std::vector<std::string> &b, uint32_t rankB,
                    const char *what) {
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i])
      ++i;
    if (i == a.size() && i == b.size())
      return false;
    auto text = [&](const std::vector<std::string> &list) {
      return i < list.size() ? list[i] : std::string("nothing");
    };
    fail(std::string(what) + " " + std::to_string(i) + " of rank " +
         std::to_string(rankA) + " is " + text(a) + ", of rank " +
         std::to_string(rankB) + " " + text(b));
    return true;
  };
  for (uint32_t c = 0; c < plan.communicators.size(); ++c) {
    context = "entry '" + entry + "', communicator '" +
              plan.communicators[c].name + "'";
    for (const std::vector<uint32_t> &group : plan.communicators[c].groups) {
      const Traffic &first = of(group[0], c);
      for (uint32_t rank : group)
        if (rankClass[rank] != rankClass[group[0]] &&
            differ(first.collectives, group[0], of(rank, c).collectives, rank,
                   "collective"))
          return false;
      if (group.size() == 2 &&
          differ(first.sends, group[0], of(group[1], c).receives, group[1],
                 "message"))
        return false;
    }
  }
  return true;
}

} // namespace piper::plan
