// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperExtension.cpp - types, schedules, plan files ------------------===//

#include "dialect/capi/Piper.h"
#include "mlir/Bindings/Python/Nanobind.h"
#include "mlir/Bindings/Python/NanobindAdaptors.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "passes/capi/Piper.h"
#include "python/bindings/PlanFunctions.h"
#include <optional>
#include <string>
#include <vector>

namespace nb = nanobind;

using Rows = std::vector<std::vector<std::string>>;

static Rows schedule(const std::string &name, int64_t stages,
                     int64_t microbatches, std::optional<int64_t> ranks) {
  struct Result {
    Rows rows;
    std::string error;
  } result;
  int64_t numRanks = ranks.value_or(stages);
  result.rows.resize(numRanks > 0 ? numRanks : 0);
  bool known = piperBuildSchedule(
      mlirStringRefCreate(name.data(), name.size()), stages, microbatches,
      numRanks,
      [](intptr_t rank, MlirStringRef action, void *data) {
        static_cast<Result *>(data)->rows[rank].emplace_back(action.data,
                                                             action.length);
      },
      [](MlirStringRef message, void *data) {
        static_cast<Result *>(data)->error.assign(message.data, message.length);
      },
      &result);
  if (!known)
    throw nb::value_error(result.error.c_str());
  return result.rows;
}

static std::vector<std::string> scheduleNames() {
  std::vector<std::string> names;
  piperListSchedules(
      [](MlirStringRef name, void *data) {
        static_cast<std::vector<std::string> *>(data)->emplace_back(
            name.data, name.length);
      },
      &names);
  return names;
}

static void addType(nb::module_ &module, const char *name,
                    bool (*isA)(MlirType), MlirType (*get)(MlirContext),
                    MlirTypeID (*getTypeID)()) {
  mlir::python::nanobind_adaptors::mlir_type_subclass(module, name, isA,
                                                      getTypeID)
      .def_classmethod(
          "get",
          [get](const nb::object &cls, MlirContext context) {
            return cls(get(context));
          },
          nb::arg("cls"), nb::arg("context") = nb::none());
}

NB_MODULE(_piper, module) {
  module.doc() = "types of the Piper dialect, schedules and plan files";
  addType(module, "BundleType", piperTypeIsABundle, piperBundleTypeGet,
          piperBundleTypeGetTypeID);
  addType(module, "TokenType", piperTypeIsAToken, piperTokenTypeGet,
          piperTokenTypeGetTypeID);
  addType(module, "MessageType", piperTypeIsAMessage, piperMessageTypeGet,
          piperMessageTypeGetTypeID);
  addPlanFunctions(module);
  module.def("schedule", schedule, nb::arg("name"), nb::arg("stages"),
             nb::arg("microbatches"), nb::arg("ranks") = nb::none(),
             "The actions of each rank in order, each as '2F0': stage, pass, "
             "microbatch. `ranks` is `stages` where it is left out. Raises "
             "ValueError for an unknown name and for sizes that the schedule "
             "does not allow.");
  module.def("schedule_names", scheduleNames,
             "The names that `schedule` knows.");
}
