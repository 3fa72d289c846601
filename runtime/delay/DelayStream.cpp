// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/delay/DelayStream.h"

#include <sys/prctl.h>

namespace piper::runtime {
namespace {

/// Timers of the thread need not be gathered with others'.
void wakeUpOnTime() { prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }

} // namespace

DelayStream::DelayStream(const DelayDevice &device,
                         const StreamOptions &options)
    : device(device), budget(options.budget),
      thread(options.name, wakeUpOnTime) {}

void DelayStream::enqueue(std::function<void()> work) {
  thread.enqueue(std::move(work));
}

void DelayStream::launch(const void *kernel, void *const *) {
  schedule.advance(device.launchTime(kernel, budget));
}

void DelayStream::copy(void *, const void *, uint64_t bytes) { pass(bytes); }

void DelayStream::fillZero(void *, uint64_t bytes) { pass(bytes); }

void DelayStream::accumulate(plan::DType dtype, bool, void *, const void *,
                             uint64_t count) {
  pass(count * plan::byteWidth(dtype));
}

void DelayStream::pass(uint64_t bytes) {
  schedule.advance(device.memoryTime(bytes));
}

} // namespace piper::runtime
