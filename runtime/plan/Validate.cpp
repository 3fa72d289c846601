// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of a whole plan: tables, names, ranks, states, inputs and outputs. The
// actions are checked in ValidateActions.cpp.
#include "Validator.h"

#include <set>

namespace piper::plan {
namespace {

/// No size in a plan exceeds this, so sums of a few of them cannot overflow.
constexpr uint64_t kMaxBytes = uint64_t(1) << 46;
constexpr uint32_t kMaxWorldSize = 1 << 20;

} // namespace

bool Validator::fail(std::string message) {
  if (error.empty())
    error = (context.empty() ? "" : context + ": ") + message;
  return false;
}

bool Validator::checkUnique(const std::string &name,
                            std::set<std::string> &seen, const char *what) {
  if (name.empty())
    return fail(std::string("expected a name for every ") + what);
  if (!seen.insert(name).second)
    return fail(std::string(what) + " '" + name + "' appears twice");
  return true;
}

bool Validator::checkSize(uint64_t bytes, const char *what) {
  return bytes <= kMaxBytes ||
         fail(std::string(what) + " of " + std::to_string(bytes) +
              " bytes is beyond any machine");
}

bool Validator::checkShape(const std::vector<uint64_t> &shape, uint64_t width) {
  for (uint64_t dim : shape)
    if (!checkSize(mulSat(dim, width), "tensor"))
      return false;
  return checkSize(mulSat(numElements(shape), width), "tensor");
}

bool Validator::run() {
  context = "plan";
  if (plan.worldSize == 0 || plan.worldSize > kMaxWorldSize)
    return fail("expected 1 to " + std::to_string(kMaxWorldSize) +
                " ranks, got " + std::to_string(plan.worldSize));
  if (plan.flags.size() > 64)
    return fail("expected at most 64 flags, got " +
                std::to_string(plan.flags.size()));
  std::set<std::string> flags;
  for (const std::string &flag : plan.flags)
    if (!checkUnique(flag, flags, "flag"))
      return false;
  return checkKernels() && checkClasses() && checkCommunicators() &&
         checkInputs() && checkEntries() && checkStates() && checkHostValues();
}

bool Validator::checkKernels() {
  std::set<std::string> names;
  for (const Kernel &kernel : plan.kernels) {
    if (!checkUnique(kernel.name, names, "kernel"))
      return false;
    context = "kernel '" + kernel.name + "'";
    if (!checkSize(kernel.workspaceBytes, "workspace"))
      return false;
    for (uint64_t bytes : kernel.pointerBytes)
      if (!checkSize(bytes, "argument"))
        return false;
  }
  return true;
}

bool Validator::checkClasses() {
  context = "plan";
  rankClass.assign(plan.worldSize, -1);
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const RankClass &current = plan.classes[c];
    context = "class " + std::to_string(c);
    if (current.ranks.empty())
      return fail("expected at least one rank");
    for (uint32_t rank : current.ranks) {
      if (rank >= plan.worldSize)
        return fail("rank " + std::to_string(rank) + " is not below " +
                    std::to_string(plan.worldSize));
      if (rankClass[rank] != -1)
        return fail("rank " + std::to_string(rank) + " appears twice");
      rankClass[rank] = int32_t(c);
    }
    if (!checkSize(current.arenaBytes, "arena") ||
        !checkSize(current.stateBytes, "state") ||
        !checkSize(current.scalarBytes, "scalar area"))
      return false;
    if (current.numEvents > (1u << 24))
      return fail("expected at most 2^24 events, got " +
                  std::to_string(current.numEvents));
    if (current.streams.size() > 256)
      return fail("expected at most 256 streams, got " +
                  std::to_string(current.streams.size()));
    std::set<std::string> names;
    for (const Stream &stream : current.streams)
      if (!checkUnique(stream.name, names, "stream") ||
          !checkSize(stream.workspaceBytes, "workspace"))
        return false;
  }
  context = "plan";
  for (uint32_t rank = 0; rank < plan.worldSize; ++rank)
    if (rankClass[rank] == -1)
      return fail("rank " + std::to_string(rank) + " belongs to no class");
  return true;
}

bool Validator::checkCommunicators() {
  std::set<std::string> names;
  members.resize(plan.communicators.size());
  for (size_t c = 0; c < plan.communicators.size(); ++c) {
    const Communicator &communicator = plan.communicators[c];
    context = "plan";
    if (!checkUnique(communicator.name, names, "communicator"))
      return false;
    context = "communicator '" + communicator.name + "'";
    for (const std::vector<uint32_t> &group : communicator.groups) {
      if (group.empty())
        return fail("expected no empty group");
      for (size_t p = 0; p < group.size(); ++p) {
        if (group[p] >= plan.worldSize)
          return fail("rank " + std::to_string(group[p]) + " is not below " +
                      std::to_string(plan.worldSize));
        Member member = {uint32_t(p), uint32_t(group.size())};
        if (!members[c].emplace(group[p], member).second)
          return fail("rank " + std::to_string(group[p]) + " appears twice");
      }
    }
  }
  return true;
}

bool Validator::checkInputs() {
  std::set<std::string> names;
  for (const Input &input : plan.inputs) {
    context = "plan";
    if (!checkUnique(input.name, names, "input"))
      return false;
    context = "input '" + input.name + "'";
    if (!checkSize(mulSat(input.rows, input.rowBytes), "tensor"))
      return false;
  }
  return true;
}

bool Validator::checkStates() {
  std::set<std::string> names;
  for (const State &state : plan.states) {
    context = "plan";
    if (!checkUnique(state.name, names, "state"))
      return false;
    context = "state '" + state.name + "'";
    uint64_t width = byteWidth(state.dtype);
    if (!checkShape(state.shape, width))
      return false;
    for (const StateSegment &segment : state.segments)
      if (!checkSegment(segment, width))
        return false;
  }
  return true;
}

bool Validator::checkSegment(const StateSegment &segment, uint64_t width) {
  if (segment.rankClass >= plan.classes.size())
    return fail("class " + std::to_string(segment.rankClass) +
                " does not exist");
  if (segment.space != Space::Arena && segment.space != Space::State)
    return fail("expected a segment in the arena or the state memory");
  const RankClass &holder = plan.classes[segment.rankClass];
  uint64_t limit =
      segment.space == Space::Arena ? holder.arenaBytes : holder.stateBytes;
  uint64_t bytes = mulSat(mulSat(segment.count, segment.repeat), width);
  if (addSat(segment.byteOffset, bytes) > limit)
    return fail("segment of " + std::to_string(bytes) + " bytes at " +
                std::to_string(segment.byteOffset) + " exceeds the " +
                std::to_string(limit) + " bytes of class " +
                std::to_string(segment.rankClass));
  if (segment.byteOffset % width != 0)
    return fail("segment at " + std::to_string(segment.byteOffset) +
                " is not aligned to its elements");
  uint64_t farthest = 0;
  if (segment.communicator != -1) {
    uint32_t position = 0;
    if (!maxPosition(segment.rankClass, segment.communicator, position))
      return false;
    farthest = mulSat(position, segment.elementStride);
  }
  farthest = addSat(farthest, mulSat(segment.repeat, segment.repeatStride));
  uint64_t begin = segment.elementOffset < 0
                       ? uint64_t(-(segment.elementOffset + 1)) + 1
                       : uint64_t(segment.elementOffset);
  if (!checkSize(begin, "element offset") || !checkSize(farthest, "stride"))
    return false;
  return true;
}

bool Validator::checkHostValues() {
  std::set<std::string> names;
  for (const Scalar &scalar : plan.scalars) {
    context = "plan";
    if (!checkUnique(scalar.name, names, "scalar"))
      return false;
    context = "scalar '" + scalar.name + "'";
    if (scalar.dtype != DType::F32 && scalar.dtype != DType::F64 &&
        scalar.dtype != DType::I64 && scalar.dtype != DType::I32)
      return fail(std::string("expected f32, f64, i64 or i32, got ") +
                  name(scalar.dtype));
    uint64_t width = byteWidth(scalar.dtype);
    for (const RankClass &current : plan.classes)
      if (addSat(scalar.offset, width) > current.scalarBytes ||
          scalar.offset % width != 0)
        return fail("offset " + std::to_string(scalar.offset) +
                    " is outside a scalar area of " +
                    std::to_string(current.scalarBytes) +
                    " bytes or not aligned");
  }
  std::set<std::string> outputs;
  for (const Output &output : plan.outputs) {
    context = "output '" + output.name + "'";
    if (output.rankClass >= plan.classes.size())
      return fail("class " + std::to_string(output.rankClass) +
                  " does not exist");
    if (!checkUnique(output.name + "' of class '" +
                         std::to_string(output.rankClass),
                     outputs, "output"))
      return false;
    if (output.address.space == Space::Input ||
        output.address.space == Space::Workspace)
      return fail("expected an address in arena, state or scalar memory");
    uint64_t width = byteWidth(output.dtype);
    if (!checkShape(output.shape, width) ||
        !checkAddress(output.address, output.rankClass, 0,
                      mulSat(numElements(output.shape), width), width))
      return false;
  }
  return true;
}

bool validate(const Plan &plan, std::string &error) {
  Validator validator(plan);
  if (validator.run())
    return true;
  error = validator.error;
  return false;
}

} // namespace piper::plan
