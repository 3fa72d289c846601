// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/StreamThread.h"

#include <csignal>
#include <pthread.h>

namespace piper::runtime {

StreamThread::StreamThread(const std::string &name,
                           std::function<void()> prepare) {
  // Signals belong to the host's threads; the new thread inherits the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    thread = std::thread([this, name, prepare] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      prepare();
      loop();
    });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StreamThread::~StreamThread() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  changed.notify_one();
  thread.join();
}

void StreamThread::enqueue(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(std::move(work));
  }
  changed.notify_one();
}

void StreamThread::loop() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stopping || !queue.empty(); });
    if (queue.empty())
      return;
    std::function<void()> work = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

} // namespace piper::runtime
