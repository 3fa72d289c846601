// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanFunctions.h - plan files from Python -----------------*- C++ -*-===//

#ifndef PIPER_PYTHON_BINDINGS_PLANFUNCTIONS_H
#define PIPER_PYTHON_BINDINGS_PLANFUNCTIONS_H

#include "mlir/Bindings/Python/NanobindAdaptors.h"
#include "passes/capi/Piper.h"
#include <map>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <stdexcept>

/// What the C functions hand back.
struct PlanReply {
  std::string bytes, error;
};

inline void addPlanFunctions(nanobind::module_ &module) {
  namespace nb = nanobind;
  module.def(
      "export_plan",
      [](MlirModule planned,
         const std::map<std::string, uint64_t> &workspaces) {
        std::vector<MlirStringRef> kernels;
        std::vector<uint64_t> bytes;
        for (const auto &[name, size] : workspaces) {
          kernels.push_back(mlirStringRefCreate(name.data(), name.size()));
          bytes.push_back(size);
        }
        PlanReply reply;
        bool succeeded = piperExportPlan(
            planned, kernels.size(), kernels.data(), bytes.data(),
            [](MlirStringRef text, void *data) {
              static_cast<PlanReply *>(data)->bytes.assign(text.data,
                                                           text.length);
            },
            [](MlirStringRef text, void *data) {
              static_cast<PlanReply *>(data)->error.append(text.data,
                                                           text.length);
            },
            &reply);
        if (!succeeded)
          throw std::runtime_error(reply.error);
        return nb::bytes(reply.bytes.data(), reply.bytes.size());
      },
      nb::arg("module"),
      nb::arg("workspaces") = std::map<std::string, uint64_t>(),
      "The plan file of a planned module. `workspaces`: bytes of scratch "
      "memory "
      "that compiled kernels need, by name. Raises RuntimeError with the "
      "diagnostics.");
  module.def(
      "plan_kernels",
      [](MlirModule planned) {
        std::vector<std::string> names;
        piperPlanKernels(
            planned,
            [](MlirStringRef name, void *data) {
              static_cast<std::vector<std::string> *>(data)->emplace_back(
                  name.data, name.length);
            },
            &names);
        return names;
      },
      nb::arg("module"),
      "Names of the functions that a planned module launches.");
}

#endif // PIPER_PYTHON_BINDINGS_PLANFUNCTIONS_H
