// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_DELAY_DELAYSTREAM_H
#define PIPER_RUNTIME_DELAY_DELAYSTREAM_H

#include "runtime/StreamThread.h"
#include "runtime/Timeline.h"
#include "runtime/delay/DelayDevice.h"

namespace piper::runtime {

/// A thread whose work is to let stated times pass. It only moves the timeline;
/// the executor waits until the clock is there.
class DelayStream : public DeviceStream {
public:
  DelayStream(const DelayDevice &device, const StreamOptions &options);

  void enqueue(std::function<void()> work) override;
  void launch(const void *kernel, void *const *args) override;
  void copy(void *dst, const void *src, uint64_t bytes) override;
  void fillZero(void *dst, uint64_t bytes) override;
  void accumulate(plan::DType dtype, bool add, void *dst, const void *src,
                  uint64_t count) override;
  char *workspace() const override { return nullptr; }
  Timeline *timeline() override { return &schedule; }

private:
  void pass(uint64_t bytes);

  const DelayDevice &device;
  uint32_t budget;
  Timeline schedule;
  StreamThread thread;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_DELAY_DELAYSTREAM_H
