// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Plan.h"
#include "Actions.h"
#include "Arithmetic.h"

namespace piper::plan {

size_t byteWidth(DType type) {
  static constexpr uint8_t widths[kNumDTypes] = {4, 8, 2, 2, 8, 4, 2, 1, 1};
  return widths[size_t(type)];
}

const char *name(DType type) {
  static constexpr const char *names[kNumDTypes] = {
      "f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "i1"};
  return names[size_t(type)];
}

const char *name(Opcode opcode) {
  static constexpr const char *names[kNumOpcodes] = {
      "launch",         "copy",       "fill_zero", "accumulate", "record",
      "wait",           "send",       "recv",      "release",    "all_reduce",
      "reduce_scatter", "all_gather", "broadcast", "all_to_all"};
  return names[size_t(opcode)];
}

bool isCollective(Opcode opcode) { return opcode >= Opcode::AllReduce; }

const char *name(Reduction reduction) {
  return reduction == Reduction::Sum ? "sum" : "max";
}

const char *name(StateKind kind) {
  static constexpr const char *names[kNumStateKinds] = {
      "parameter", "buffer", "moment", "gradient", "constant"};
  return names[size_t(kind)];
}

int64_t classOf(const Plan &plan, uint32_t rank) {
  for (size_t i = 0; i < plan.classes.size(); ++i)
    for (uint32_t member : plan.classes[i].ranks)
      if (member == rank)
        return int64_t(i);
  return -1;
}

bool findPosition(const Communicator &communicator, uint32_t rank,
                  uint32_t &group, uint32_t &position) {
  for (size_t g = 0; g < communicator.groups.size(); ++g)
    for (size_t p = 0; p < communicator.groups[g].size(); ++p)
      if (communicator.groups[g][p] == rank) {
        group = uint32_t(g);
        position = uint32_t(p);
        return true;
      }
  return false;
}

uint64_t numElements(const std::vector<uint64_t> &shape) {
  uint64_t count = 1;
  for (uint64_t dim : shape)
    count = mulSat(count, dim);
  return count;
}

uint64_t extent(const Plan &plan, const Action &action, size_t i,
                uint64_t groupSize) {
  switch (action.opcode) {
  case Opcode::Launch:
    return plan.kernels[action.imm[0]].pointerBytes[i];
  case Opcode::Copy:
  case Opcode::FillZero:
    return action.imm[0];
  case Opcode::Accumulate:
    return mulSat(action.imm[1], byteWidth(DType(action.imm[0])));
  case Opcode::Send:
  case Opcode::Recv:
    return action.imm[1];
  case Opcode::Record:
  case Opcode::Wait:
  case Opcode::Release:
    return 0;
  case Opcode::AllReduce:
  case Opcode::ReduceScatter:
  case Opcode::AllGather:
  case Opcode::Broadcast:
  case Opcode::AllToAll:
    break;
  }
  bool isSrc = i == 0;
  bool wholeGroup = action.opcode == Opcode::AllToAll ||
                    (action.opcode == Opcode::ReduceScatter && isSrc) ||
                    (action.opcode == Opcode::AllGather && !isSrc);
  uint64_t bytes = mulSat(action.imm[2], byteWidth(DType(action.imm[1])));
  return wholeGroup ? mulSat(bytes, groupSize) : bytes;
}

} // namespace piper::plan
