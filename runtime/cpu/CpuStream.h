// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_CPU_CPUSTREAM_H
#define PIPER_RUNTIME_CPU_CPUSTREAM_H

#include "runtime/StreamThread.h"

namespace piper::runtime {

/// A thread that does what is enqueued, in order, in its own call stack: a
/// kernel that returned is done, so copies and launches need no more order.
class CpuStream : public DeviceStream {
public:
  explicit CpuStream(const StreamOptions &options);
  /// Finishes the queue.
  ~CpuStream() override;

  void enqueue(std::function<void()> work) override;
  void launch(const void *kernel, void *const *args) override;
  void copy(void *dst, const void *src, uint64_t bytes) override;
  void fillZero(void *dst, uint64_t bytes) override;
  void accumulate(plan::DType dtype, bool add, void *dst, const void *src,
                  uint64_t count) override;
  char *workspace() const override { return scratch; }

private:
  uint64_t scratchBytes;
  char *scratch = nullptr;
  std::unique_ptr<StreamThread> thread;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_CPUSTREAM_H
