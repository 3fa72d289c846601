// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperRegister.cpp - registration of dialects and passes ------------===//
//
// Imported while the core module initialises, so it must not create type
// subclasses: they would import the core module again.
//
//===----------------------------------------------------------------------===//

#include "mlir/Bindings/Python/Nanobind.h"
#include "mlir/Bindings/Python/NanobindAdaptors.h"
#include "passes/capi/Piper.h"

NB_MODULE(_piperRegister, module) {
  module.def("register_dialects", [](MlirDialectRegistry registry) {
    piperRegisterDialects(registry);
  });
  module.def("register_passes", [] { piperRegisterPasses(); });
}
