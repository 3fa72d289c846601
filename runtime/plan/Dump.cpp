// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Actions.h"

#include <sstream>

namespace piper::plan {
namespace {

const char *spaceName(Space space) {
  static constexpr const char *names[kNumSpaces] = {"arena", "state", "input",
                                                    "scalar", "workspace"};
  return names[size_t(space)];
}

class Dumper {
public:
  explicit Dumper(const Plan &plan) : plan(plan) {}

  std::string run() {
    out << "plan version=" << kVersion << " ranks=" << plan.worldSize << "\n";
    for (size_t i = 0; i < plan.flags.size(); ++i)
      out << "flag " << i << " '" << plan.flags[i] << "'\n";
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      const Kernel &kernel = plan.kernels[i];
      out << "kernel " << i << " '" << kernel.name
          << "' workspace=" << kernel.workspaceBytes << " pointers=[";
      list(kernel.pointerBytes);
      out << "]\n";
    }
    for (size_t i = 0; i < plan.communicators.size(); ++i) {
      out << "communicator " << i << " '" << plan.communicators[i].name << "'";
      for (const auto &group : plan.communicators[i].groups) {
        out << " [";
        list(group);
        out << "]";
      }
      out << "\n";
    }
    hostValues();
    for (size_t i = 0; i < plan.classes.size(); ++i)
      rankClass(i);
    return out.str();
  }

private:
  template <typename T> void list(const std::vector<T> &values) {
    for (size_t i = 0; i < values.size(); ++i)
      out << (i ? " " : "") << values[i];
  }

  void address(const Address &a) {
    out << spaceName(a.space);
    if (a.space == Space::Input)
      out << "#" << a.index;
    out << "+" << a.offset;
    if (a.communicator >= 0)
      out << "+position('" << plan.communicators[a.communicator].name << "')*"
          << a.stride;
  }

  void hostValues() {
    for (const State &state : plan.states) {
      out << name(state.kind) << " '" << state.name << "' " << name(state.dtype)
          << "[";
      list(state.shape);
      out << "]\n";
      for (const StateSegment &s : state.segments) {
        out << "  class " << s.rankClass << " " << spaceName(s.space) << "+"
            << s.byteOffset << " elements=" << s.elementOffset << ":"
            << s.count;
        if (s.communicator >= 0)
          out << " position('" << plan.communicators[s.communicator].name
              << "')*" << s.elementStride;
        if (s.repeat != 1)
          out << " repeat=" << s.repeat << "*" << s.repeatStride;
        out << "\n";
      }
    }
    for (const Input &input : plan.inputs)
      out << "input '" << input.name << "' " << name(input.dtype)
          << " rows=" << input.rows << " row_bytes=" << input.rowBytes << "\n";
    for (const Scalar &scalar : plan.scalars)
      out << "scalar '" << scalar.name << "' " << name(scalar.dtype) << " at "
          << scalar.offset << "\n";
    for (const Output &output : plan.outputs) {
      out << "output '" << output.name << "' " << name(output.dtype) << "[";
      list(output.shape);
      out << "] class " << output.rankClass << " ";
      address(output.address);
      out << "\n";
    }
  }

  void rankClass(size_t index) {
    const RankClass &c = plan.classes[index];
    out << "class " << index << " ranks=[";
    list(c.ranks);
    out << "] arena=" << c.arenaBytes << " peak=" << c.peakBytes
        << " state=" << c.stateBytes << " scalar=" << c.scalarBytes
        << " events=" << c.numEvents << "\n";
    for (const BufferInfo &b : c.buffers)
      out << "  buffer '" << b.label << "' " << b.kind << " at " << b.offset
          << " bytes=" << b.bytes << " actions=" << b.firstAction << ".."
          << b.lastAction << "\n";
    for (const auto &[entry, streams] : c.entries) {
      out << "  entry '" << entry << "'\n";
      for (size_t s = 0; s < streams.size(); ++s) {
        out << "    stream '" << c.streams[s].name
            << "' cores=" << c.streams[s].cores
            << " workspace=" << c.streams[s].workspaceBytes << "\n";
        for (const Action &a : streams[s])
          action(a);
      }
    }
  }

  void action(const Action &a) {
    out << "      " << name(a.opcode);
    if (a.opcode == Opcode::Launch)
      out << " '" << plan.kernels[a.imm[0]].name << "'";
    if (a.opcode == Opcode::Send || a.opcode == Opcode::Recv ||
        a.opcode == Opcode::Release)
      out << " '" << plan.communicators[a.imm[0]].name << "' " << a.imm[1];
    else if (isCollective(a.opcode))
      collective(collectiveOperands(a));
    else if (a.opcode == Opcode::Accumulate)
      accumulate(a);
    else if (a.opcode != Opcode::Launch)
      out << " " << a.imm[0];
    for (const Address &operand : a.addresses) {
      out << " ";
      address(operand);
    }
    if (a.predicate)
      out << (a.predicate & kPredicateNegated ? " unless '" : " if '")
          << plan.flags[(a.predicate & ~kPredicateNegated) - 1] << "'";
    if (!a.label.empty())
      out << " // " << a.label;
    out << "\n";
  }

  void collective(const CollectiveOperands &o) {
    out << " '" << plan.communicators[o.communicator].name << "' "
        << name(o.reduction) << " " << o.count << " " << name(o.dtype)
        << " root=" << o.root;
  }

  void accumulate(const Action &a) {
    out << " " << a.imm[1] << " " << name(DType(a.imm[0]));
    if (a.imm[2] == kAccumulateWrite)
      out << " write";
    else if (a.imm[2] == kAccumulateAdd)
      out << " add";
    else
      out << " write_if '" << plan.flags[a.imm[2]] << "'";
  }

  const Plan &plan;
  std::ostringstream out;
};

} // namespace

std::string dump(const Plan &plan) { return Dumper(plan).run(); }

} // namespace piper::plan
