// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launching one compiled kernel by hand, for tests and measurements.
#include "runtime/BindingsKernel.h"

#include "runtime/Error.h"
#include "runtime/cpu/KernelFailure.h"
#include "runtime/cpu/ObjectLoader.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace piper::runtime {
namespace {

using Entry = void (*)(void *const *);

class KernelObject {
public:
  explicit KernelObject(const nb::bytes &object)
      : loaded(LoadedObject::load(
            "kernel", std::string_view(object.c_str(), object.size()))) {}

  void launch(const std::string &symbol,
              const std::vector<uintptr_t> &addresses) const {
    Entry entry = find(symbol);
    {
      nb::gil_scoped_release release;
      entry(reinterpret_cast<void *const *>(addresses.data()));
    }
    if (const char *message = takeKernelFailure())
      throw Error(symbol + ": " + message);
  }

private:
  Entry find(const std::string &symbol) const {
    for (const auto &[name, address] : loaded->symbols())
      if (name == symbol)
        return reinterpret_cast<Entry>(const_cast<void *>(address));
    throw Error("expected an object with function '" + symbol + "'");
  }

  std::unique_ptr<LoadedObject> loaded;
};

} // namespace

void bindKernel(nb::module_ &m) {
  nb::class_<KernelObject>(m, "KernelObject", "One loaded object file.")
      .def(nb::init<const nb::bytes &>(), nb::arg("object"))
      .def("launch", &KernelObject::launch, nb::arg("symbol"),
           nb::arg("addresses"),
           "Calls the kernel with addresses of arguments, results and "
           "workspace. Raises RuntimeError if the kernel reports a failure.");
}

} // namespace piper::runtime
