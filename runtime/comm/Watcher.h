// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Watches the other processes of a job, with no help from a launcher. When one
// is lost it stops this process's ranks, says so in one line on stderr, gives
// the host a moment to end in order, and then ends the process with code 3.
#ifndef PIPER_RUNTIME_COMM_WATCHER_H
#define PIPER_RUNTIME_COMM_WATCHER_H

#include "runtime/comm/World.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace piper::runtime {

class Watcher {
public:
  Watcher(World &world, const std::vector<SegmentHandle> &remote);
  /// Ends the thread, unless a rank was lost: then it stays to end the process.
  ~Watcher();

  /// Waits until the failure that the world holds has been printed.
  void awaitReport();

private:
  struct Peer {
    uint32_t rank;
    int pid;
    int pidfd;
    bool gone;
  };

  void watch();
  /// True if there is a failure that ends this process.
  bool lookForLoss();
  void noticeDeaths();
  void report();

  World &world;
  std::vector<Peer> peers;
  int wakeUp = -1;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  bool finished = false;
  bool lost = false;
  std::thread thread;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_WATCHER_H
