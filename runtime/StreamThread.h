// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_STREAMTHREAD_H
#define PIPER_RUNTIME_STREAMTHREAD_H

#include "runtime/Device.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace piper::runtime {

/// The queue of a stream that is a thread of this process: does what is
/// enqueued, in order.
class StreamThread {
public:
  /// `prepare` runs first, in the new thread.
  StreamThread(const std::string &name, std::function<void()> prepare);
  /// Finishes the queue and joins the thread.
  ~StreamThread();

  void enqueue(std::function<void()> work);

private:
  void loop();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stopping = false;
  std::thread thread;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_STREAMTHREAD_H
