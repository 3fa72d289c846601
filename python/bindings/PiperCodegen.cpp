// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperCodegen.cpp - compiling kernels to objects --------------------===//

#include "mlir/Bindings/Python/Nanobind.h"
#include "passes/capi/Codegen.h"
#include <stdexcept>
#include <string>

namespace nb = nanobind;

namespace {
struct Output {
  std::string object, metadata, error;
};

template <std::string Output::*field>
void store(MlirStringRef text, void *output) {
  (static_cast<Output *>(output)->*field).assign(text.data, text.length);
}

MlirStringRef ref(const std::string &text) {
  return mlirStringRefCreate(text.data(), text.size());
}

nb::tuple compileObject(const std::string &text, const std::string &cpu,
                        const std::string &features, unsigned optLevel) {
  Output output;
  bool ok;
  {
    nb::gil_scoped_release release;
    ok = piperCompileObject(ref(text), ref(cpu), ref(features), optLevel,
                            store<&Output::object>, store<&Output::metadata>,
                            store<&Output::error>, &output);
  }
  if (!ok)
    throw std::runtime_error(output.error);
  return nb::make_tuple(nb::bytes(output.object.data(), output.object.size()),
                        output.metadata);
}

nb::tuple hostCpu() {
  Output output;
  piperHostCpu(store<&Output::object>, store<&Output::metadata>, &output);
  return nb::make_tuple(output.object, output.metadata);
}
} // namespace

NB_MODULE(_piperCodegen, module) {
  module.doc() = "compiles kernel modules to x86-64 object files";
  module.def("compile_object", &compileObject, nb::arg("module_text"),
             nb::arg("cpu") = "native", nb::arg("features") = "",
             nb::arg("opt_level") = 2u,
             "Compiles MLIR text to (ELF object, JSON metadata). Raises "
             "RuntimeError with the diagnostics.");
  module.def("host_cpu", &hostCpu,
             "The name and the features of this machine's processor.");
}
