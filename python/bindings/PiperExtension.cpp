// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperExtension.cpp - types and plan files --------------------------===//

#include "dialect/capi/Piper.h"
#include "mlir/Bindings/Python/Nanobind.h"
#include "mlir/Bindings/Python/NanobindAdaptors.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "passes/capi/Piper.h"
#include "python/bindings/PlanFunctions.h"
#include <string>
#include <vector>

namespace nb = nanobind;

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
  module.doc() = "types of the Piper dialect and plan files";
  addType(module, "BundleType", piperTypeIsABundle, piperBundleTypeGet,
          piperBundleTypeGetTypeID);
  addType(module, "TokenType", piperTypeIsAToken, piperTokenTypeGet,
          piperTokenTypeGetTypeID);
  addType(module, "MessageType", piperTypeIsAMessage, piperMessageTypeGet,
          piperMessageTypeGetTypeID);
  addPlanFunctions(module);
}
