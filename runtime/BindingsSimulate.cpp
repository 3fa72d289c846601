// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/BindingsSimulate.h"

#include "runtime/simulate/Simulator.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace piper::runtime {

nb::dict simulatePlan(const plan::Plan &plan, const DelayCosts &costs,
                      const std::string &entry, uint64_t flags) {
  Simulation simulation;
  {
    nb::gil_scoped_release release;
    simulation = simulate(plan, DelayDevice(costs, plan), entry, flags);
  }
  nb::list actions;
  for (const SimulatedAction &item : simulation.actions) {
    const plan::RankClass &rankClass =
        plan.classes[size_t(plan::classOf(plan, item.rank))];
    bool launches = item.action->opcode == plan::Opcode::Launch;
    actions.append(nb::make_tuple(
        item.rank, rankClass.streams[item.stream].name, item.stream, item.index,
        plan::name(item.action->opcode), item.action->label,
        launches ? plan.kernels[item.action->imm[0]].name : std::string(),
        item.bytes, double(item.start) * 1e-9, double(item.end) * 1e-9,
        double(item.waited) * 1e-9, item.action->where));
  }
  nb::dict result;
  result["duration"] = double(simulation.duration) * 1e-9;
  result["actions"] = actions;
  result["critical_path"] = simulation.criticalPath;
  return result;
}

} // namespace piper::runtime
