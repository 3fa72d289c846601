// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperExtension.cpp - the dialect's types and attributes ------------===//

#include "dialect/capi/Piper.h"
#include "mlir/Bindings/Python/Nanobind.h"
#include "mlir/Bindings/Python/NanobindAdaptors.h"

NB_MODULE(_piper, module) {
  module.doc() = "types and attributes of the Piper dialect";
}
