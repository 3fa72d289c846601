// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_DELAY_DELAYDEVICE_H
#define PIPER_RUNTIME_DELAY_DELAYDEVICE_H

#include "runtime/Device.h"
#include "runtime/comm/Link.h"

namespace piper::runtime {

/// How long everything takes. Patterns are those of fnmatch(3); of several that
/// match the first counts. What matches none takes no time.
struct DelayCosts {
  struct KernelCost {
    /// Of a launch's label, or else of its kernel's name.
    std::string pattern;
    double seconds = 0;
  };
  struct LinkCost {
    /// Of a communicator's name.
    std::string pattern;
    double latencySeconds = 0;
    /// Infinity = bytes take no time.
    double bytesPerSecond = 0;
  };
  std::vector<KernelCost> kernels;
  std::vector<LinkCost> links;
  /// Of copies, zero fills and accumulations; infinity = they take no time.
  double memoryBytesPerSecond = 0;
  /// Cores (multiprocessors) of a rank, all of which the stated kernels use: on
  /// a stream with a budget they take as much longer as that is smaller. 0 =
  /// budgets slow nothing down.
  uint32_t cores = 0;
};

/// Kernels and links take stated times and compute nothing: no byte of a rank's
/// memory is touched, so that many ranks fit on a small machine. Order, overlap
/// and waits are those of the plan, run by the same executor.
class DelayDevice : public Device {
public:
  /// Throws Error if a number is not one of these or a pattern matches nothing
  /// in `plan`.
  DelayDevice(const DelayCosts &costs, const plan::Plan &plan);

  void loadObject(const std::string &name, std::string_view bytes) override;
  const void *findKernel(const std::string &symbol,
                         const std::string &label) const override;
  std::unique_ptr<DeviceStream>
  createStream(const StreamOptions &options) override;
  const Link *link(const std::string &communicator) const override;
  bool holdsData() const override { return false; }
  /// In nanoseconds; `budget` is that of the stream.
  uint64_t launchTime(const void *kernel, uint32_t budget) const;
  /// Of a copy, zero fill or accumulation, in nanoseconds.
  uint64_t memoryTime(uint64_t bytes) const {
    return uint64_t(double(bytes) * memoryNsPerByte);
  }

private:
  struct KernelTime {
    std::string pattern;
    uint64_t nanoseconds;
  };
  struct NamedLink {
    std::string pattern;
    Link link;
  };
  void checkPatterns(const plan::Plan &plan) const;
  void checkBudgets(const plan::Plan &plan) const;

  std::vector<KernelTime> kernels;
  std::vector<NamedLink> links;
  double memoryNsPerByte = 0;
  uint32_t cores = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_DELAY_DELAYDEVICE_H
