// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_CPUDEVICE_H
#define PIPER_RUNTIME_CPU_CPUDEVICE_H

#include "runtime/Device.h"
#include "runtime/cpu/ObjectLoader.h"

#include <unordered_map>

namespace piper::runtime {

/// Streams are threads, kernels are functions of x86-64 object files.
class CpuDevice : public Device {
public:
  void loadObject(const std::string &name, std::string_view bytes) override;
  const void *findKernel(const std::string &symbol,
                         const std::string &label) const override;
  std::unique_ptr<DeviceStream>
  createStream(const StreamOptions &options) override;

private:
  std::vector<std::unique_ptr<LoadedObject>> objects;
  std::unordered_map<std::string, const void *> kernels;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_CPUDEVICE_H
