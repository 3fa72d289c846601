// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builders of actions and typed views of their operands, so that no other file
// counts positions in `addresses` and `imm`.
#ifndef PIPER_RUNTIME_PLAN_ACTIONS_H
#define PIPER_RUNTIME_PLAN_ACTIONS_H

#include "Plan.h"

#include <utility>

namespace piper::plan {

inline uint32_t whenSet(uint32_t flag) { return 1 + flag; }
inline uint32_t whenClear(uint32_t flag) {
  return (1 + flag) | kPredicateNegated;
}
/// Whether a predicate holds for the flags of a run.
inline bool holds(uint32_t predicate, uint64_t flags) {
  if (predicate == 0)
    return true;
  bool set = (flags >> ((predicate & ~kPredicateNegated) - 1)) & 1;
  return set != bool(predicate & kPredicateNegated);
}

inline Action makeAction(Opcode opcode, std::vector<Address> addresses,
                         std::vector<uint64_t> imm, std::string label) {
  Action action;
  action.opcode = opcode;
  action.addresses = std::move(addresses);
  action.imm = std::move(imm);
  action.label = std::move(label);
  return action;
}

inline Action launch(uint32_t kernel, std::vector<Address> pointers,
                     std::string label = "") {
  return makeAction(Opcode::Launch, std::move(pointers), {kernel},
                    std::move(label));
}
inline Action copy(Address dst, Address src, uint64_t bytes,
                   std::string label = "") {
  return makeAction(Opcode::Copy, {dst, src}, {bytes}, std::move(label));
}
inline Action fillZero(Address dst, uint64_t bytes, std::string label = "") {
  return makeAction(Opcode::FillZero, {dst}, {bytes}, std::move(label));
}
/// `mode`: kAccumulateAdd, kAccumulateWrite or the number of a flag.
inline Action accumulate(Address dst, Address src, DType dtype, uint64_t count,
                         uint64_t mode, std::string label = "") {
  return makeAction(Opcode::Accumulate, {dst, src},
                    {uint64_t(dtype), count, mode}, std::move(label));
}
inline Action record(uint32_t event, std::string label = "") {
  return makeAction(Opcode::Record, {}, {event}, std::move(label));
}
inline Action wait(uint32_t event, std::string label = "") {
  return makeAction(Opcode::Wait, {}, {event}, std::move(label));
}
inline Action send(uint32_t channel, Address src, uint64_t bytes,
                   std::string label = "") {
  return makeAction(Opcode::Send, {src}, {channel, bytes}, std::move(label));
}
inline Action recv(uint32_t channel, Address dst, uint64_t bytes,
                   std::string label = "") {
  return makeAction(Opcode::Recv, {dst}, {channel, bytes}, std::move(label));
}
inline Action release(uint32_t channel, uint64_t message,
                      std::string label = "") {
  return makeAction(Opcode::Release, {}, {channel, message}, std::move(label));
}
inline Action collective(Opcode opcode, uint32_t communicator, Address src,
                         Address dst, DType dtype, uint64_t count,
                         Reduction reduction = Reduction::Sum,
                         uint32_t root = 0, std::string label = "") {
  return makeAction(
      opcode, {src, dst},
      {communicator, uint64_t(dtype), count, uint64_t(reduction), root},
      std::move(label));
}
inline Action allReduce(uint32_t communicator, Address src, Address dst,
                        DType dtype, uint64_t count,
                        Reduction reduction = Reduction::Sum,
                        std::string label = "") {
  return collective(Opcode::AllReduce, communicator, src, dst, dtype, count,
                    reduction, 0, std::move(label));
}
inline Action reduceScatter(uint32_t communicator, Address src, Address dst,
                            DType dtype, uint64_t count,
                            Reduction reduction = Reduction::Sum,
                            std::string label = "") {
  return collective(Opcode::ReduceScatter, communicator, src, dst, dtype, count,
                    reduction, 0, std::move(label));
}
inline Action allGather(uint32_t communicator, Address src, Address dst,
                        DType dtype, uint64_t count, std::string label = "") {
  return collective(Opcode::AllGather, communicator, src, dst, dtype, count,
                    Reduction::Sum, 0, std::move(label));
}
inline Action broadcast(uint32_t communicator, Address src, Address dst,
                        DType dtype, uint64_t count, uint32_t root,
                        std::string label = "") {
  return collective(Opcode::Broadcast, communicator, src, dst, dtype, count,
                    Reduction::Sum, root, std::move(label));
}
inline Action allToAll(uint32_t communicator, Address src, Address dst,
                       DType dtype, uint64_t count, std::string label = "") {
  return collective(Opcode::AllToAll, communicator, src, dst, dtype, count,
                    Reduction::Sum, 0, std::move(label));
}

/// The operands of a collective.
struct CollectiveOperands {
  uint32_t communicator;
  const Address &src;
  const Address &dst;
  DType dtype;
  uint64_t count;
  Reduction reduction;
  uint32_t root;
};
inline CollectiveOperands collectiveOperands(const Action &action) {
  return {uint32_t(action.imm[0]), action.addresses[0],
          action.addresses[1],     DType(action.imm[1]),
          action.imm[2],           Reduction(action.imm[3]),
          uint32_t(action.imm[4])};
}

/// Bytes that a valid action touches behind address `i`, for a communicator of
/// `groupSize` members (1 where the action has none).
uint64_t extent(const Plan &plan, const Action &action, size_t i,
                uint64_t groupSize);

} // namespace piper::plan

#endif // PIPER_RUNTIME_PLAN_ACTIONS_H
