// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a rank computes. A device gives streams (queues that run beside each
// other and beside the host), kernels and element-wise copies.
#ifndef PIPER_RUNTIME_DEVICE_H
#define PIPER_RUNTIME_DEVICE_H

#include "runtime/plan/Plan.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace piper::runtime {

class Timeline;
struct Link;

struct StreamOptions {
  std::string name;
  /// Cores that the stream may use; empty = any.
  std::vector<int> cores;
  /// How many the plan gives it, 0 = any number.
  uint32_t budget = 0;
  uint64_t workspaceBytes = 0;
};

/// A queue of work. Everything but `enqueue` is called from work that runs in
/// the queue, and is ordered with it.
class DeviceStream {
public:
  virtual ~DeviceStream() = default;
  /// Returns at once; the work runs after all that was enqueued before.
  virtual void enqueue(std::function<void()> work) = 0;
  /// args: the kernel's pointers, with the stream's workspace as the last.
  /// Throws Error if the kernel reports a failure.
  virtual void launch(const void *kernel, void *const *args) = 0;
  virtual void copy(void *dst, const void *src, uint64_t bytes) = 0;
  virtual void fillZero(void *dst, uint64_t bytes) = 0;
  /// dst = (add ? dst : 0) + src.
  virtual void accumulate(plan::DType dtype, bool add, void *dst,
                          const void *src, uint64_t count) = 0;
  virtual char *workspace() const = 0;
  /// Null unless the device states how long its work takes.
  virtual Timeline *timeline() { return nullptr; }
};

class Device {
public:
  virtual ~Device() = default;
  /// Loads compiled code. `name` is for messages. Throws Error if the bytes are
  /// not what this device executes; nothing in them runs meanwhile.
  virtual void loadObject(const std::string &name, std::string_view bytes) = 0;
  /// The kernel `symbol` of the loaded objects, for a launch with this label;
  /// or null.
  virtual const void *findKernel(const std::string &symbol,
                                 const std::string &label) const = 0;
  virtual std::unique_ptr<DeviceStream>
  createStream(const StreamOptions &options) = 0;
  /// Null if communicators move bytes; otherwise how long they take without.
  virtual const Link *link(const std::string & /*communicator*/) const {
    return nullptr;
  }
  /// Whether memory has contents; if not, nothing reads or writes it.
  virtual bool holdsData() const { return true; }
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_DEVICE_H
