// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Bindings.cpp - the schedule library as piper._schedule -------------===//

#include "passes/schedule/library/Csv.h"
#include "passes/schedule/library/Prove.h"
#include "passes/schedule/library/Schedules.h"
#include "passes/schedule/library/Simulate.h"
#include "passes/schedule/library/Transfers.h"
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tuple>

namespace nb = nanobind;
using namespace piper::schedule;

namespace {
/// As Python sees an action: stage, kind and microbatch; -1 for all of them.
using ActionTuple = std::tuple<int64_t, std::string, int64_t>;
using CellTuples = std::vector<ActionTuple>;

/// F, B, I and W of a stage.
using CostTuple = std::tuple<double, double, double, double>;

/// A class of its own: a bare vector would become a list.
struct Schedule {
  Table table;
};
} // namespace

static std::string printKind(const Action &action) {
  std::string text = print(Action{0, action.kind, -1});
  return text.substr(1);
}

static std::vector<std::vector<CellTuples>> getCells(const Schedule &schedule) {
  std::vector<std::vector<CellTuples>> rows;
  for (const Row &row : schedule.table) {
    rows.emplace_back();
    for (const Cell &cell : row) {
      rows.back().emplace_back();
      for (const Action &action : cell)
        rows.back().back().emplace_back(action.stage, printKind(action),
                                        action.microbatch);
    }
  }
  return rows;
}

static Schedule build(const std::string &name, int64_t stages,
                      int64_t microbatches, int64_t ranks) {
  std::string error;
  std::optional<Table> table =
      buildSchedule(name, {stages, microbatches, ranks}, error);
  if (!table)
    throw nb::value_error(error.c_str());
  return {std::move(*table)};
}

static Schedule readText(const std::string &text, const std::string &source) {
  std::string error;
  std::optional<Table> table = readCsv(text, source, error);
  if (!table)
    throw nb::value_error(error.c_str());
  return {std::move(*table)};
}

static std::optional<std::string> prove(const Schedule &schedule) {
  std::optional<Problem> problem = proveTable(schedule.table);
  if (!problem)
    return std::nullopt;
  return printProblem(schedule.table, *problem);
}

static Times run(const Schedule &schedule, const std::vector<CostTuple> &stages,
                 double latency, double transfer, bool sendsWait) {
  Costs costs;
  costs.latency = latency;
  costs.transfer = transfer;
  costs.stages.clear();
  for (auto [forward, backward, inputGradient, weightGradient] : stages)
    costs.stages.push_back({forward, backward, inputGradient, weightGradient});
  std::string error;
  std::optional<Times> times =
      simulate(schedule.table, costs, sendsWait, error);
  if (!times)
    throw nb::value_error(error.c_str());
  return std::move(*times);
}

static void addTimes(nb::module_ &module) {
  nb::class_<Span>(module, "Span")
      .def_ro("start", &Span::start)
      .def_ro("end", &Span::end);
  nb::class_<RankTimes>(module, "RankTimes")
      .def_ro("first_start", &RankTimes::firstStart)
      .def_ro("last_end", &RankTimes::lastEnd)
      .def_ro("busy", &RankTimes::busy)
      .def_ro("peak_live", &RankTimes::peakLive)
      .def_prop_ro("bubble", &RankTimes::bubble);
  nb::class_<Times>(module, "Times")
      .def_ro("makespan", &Times::makespan)
      .def_ro("ranks", &Times::ranks)
      .def_ro("cells", &Times::cells)
      .def_prop_ro("bubble", &Times::bubble)
      .def("__str__", &printTimes);
}

NB_MODULE(_schedule, module) {
  module.doc() = "pipeline schedules, their proof and their simulation";
  addTimes(module);
  nb::class_<Schedule>(module, "Schedule")
      .def("cells", &getCells)
      .def_prop_ro("stages",
                   [](const Schedule &s) { return countStages(s.table); })
      .def_prop_ro("microbatches",
                   [](const Schedule &s) { return countMicrobatches(s.table); })
      .def_prop_ro("has_transfers",
                   [](const Schedule &s) { return hasTransfers(s.table); })
      .def_prop_ro("ranks", [](const Schedule &s) { return s.table.size(); })
      .def("csv", [](const Schedule &s) { return writeCsv(s.table); })
      .def("prove", &prove)
      .def("with_transfers",
           [](const Schedule &s) { return Schedule{addTransfers(s.table)}; })
      .def("simulate", &run, nb::arg("stages"), nb::arg("latency"),
           nb::arg("transfer"), nb::arg("sends_wait"))
      .def(
          "timeline",
          [](const Schedule &s, const Times &times) {
            return printTimeline(s.table, times);
          },
          nb::arg("times"))
      .def("__str__", [](const Schedule &s) { return print(s.table); });
  module.def("names", [] {
    std::vector<std::string> names;
    for (const ScheduleInfo &info : getSchedules())
      names.emplace_back(info.name);
    return names;
  });
  module.def("default_ranks", &getDefaultRanks, nb::arg("name"),
             nb::arg("stages"));
  module.def("default_stages", &getDefaultStages, nb::arg("name"),
             nb::arg("ranks"));
  module.def("build", &build, nb::arg("name"), nb::arg("stages"),
             nb::arg("microbatches"), nb::arg("ranks"));
  module.def("read_csv", &readText, nb::arg("text"), nb::arg("source"));
}
