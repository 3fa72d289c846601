// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/CpuDevice.h"

#include "runtime/Error.h"
#include "runtime/cpu/CpuStream.h"

namespace piper::runtime {

void CpuDevice::loadObject(const std::string &name, std::string_view bytes) {
  std::unique_ptr<LoadedObject> object = LoadedObject::load(name, bytes);
  for (const auto &[symbol, address] : object->symbols())
    if (!kernels.emplace(symbol, address).second)
      throw Error("object '" + name + "': symbol '" + symbol +
                  "' is already defined by another object");
  objects.push_back(std::move(object));
}

const void *CpuDevice::findKernel(const std::string &symbol,
                                  const std::string &) const {
  auto it = kernels.find(symbol);
  return it == kernels.end() ? nullptr : it->second;
}

std::unique_ptr<DeviceStream>
CpuDevice::createStream(const StreamOptions &options) {
  return std::make_unique<CpuStream>(options);
}

} // namespace piper::runtime
