// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Watcher.h"

#include "runtime/Error.h"
#include "runtime/comm/Diagnosis.h"
#include "runtime/comm/Termination.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace piper::runtime {
namespace {

constexpr int kTickMs = 50;
constexpr int kLostExitCode = 3;

int openPidfd(int pid) { return int(syscall(SYS_pidfd_open, pid, 0)); }

/// Signals of the process are the host's business.
void blockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

} // namespace

Watcher::Watcher(World &world, const std::vector<SegmentHandle> &remote)
    : world(world) {
  RankHeader &own = world.segment(world.localRanks()[0]).header();
  for (const SegmentHandle &handle : remote) {
    int pidfd = openPidfd(handle.pid);
    if (pidfd < 0 || processStartTime(handle.pid) != handle.startTime) {
      int code = errno;
      if (pidfd >= 0)
        ::close(pidfd);
      for (Peer &peer : peers)
        ::close(peer.pidfd);
      throw RankLost("rank " + std::to_string(handle.rank) + " (process " +
                     std::to_string(handle.pid) +
                     ") went away while the ranks met: " + std::strerror(code));
    }
    peers.push_back({handle.rank, handle.pid, pidfd, false});
  }
  for (Peer &peer : peers)
    guardTermination(peer.pidfd, peer.rank, world.segment(peer.rank).header(),
                     own);
  wakeUp = eventfd(0, EFD_CLOEXEC);
  thread = std::thread([this] { watch(); });
}

Watcher::~Watcher() {
  {
    std::unique_lock<std::mutex> lock(mutex);
    stopping = true;
    uint64_t one = 1;
    if (write(wakeUp, &one, sizeof(one)) < 0)
      stopping = true; // It looks again within one tick.
    changed.wait(lock, [&] { return finished; });
  }
  if (lost)
    thread.detach();
  else
    thread.join();
  for (Peer &peer : peers) {
    unguardTermination(peer.pidfd);
    ::close(peer.pidfd);
  }
  ::close(wakeUp);
}

void Watcher::awaitReport() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_for(lock, std::chrono::seconds(1), [&] { return finished; });
}

void Watcher::watch() {
  blockSignals();
  std::vector<pollfd> fds;
  bool loss = false;
  while (!loss) {
    fds.assign(1, {wakeUp, POLLIN, 0});
    for (Peer &peer : peers)
      if (!peer.gone)
        fds.push_back({peer.pidfd, POLLIN, 0});
    poll(fds.data(), fds.size(), kTickMs);
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (stopping)
        break;
    }
    loss = lookForLoss();
  }
  double grace = world.options().graceSeconds;
  std::function<void()> onLoss = world.options().onLoss;
  if (loss)
    report();
  {
    std::lock_guard<std::mutex> lock(mutex);
    lost = loss;
    finished = true;
    // From here on this object may be gone.
    changed.notify_all();
  }
  if (!loss)
    return;
  if (onLoss)
    onLoss();
  std::this_thread::sleep_for(std::chrono::duration<double>(grace));
  _exit(kLostExitCode);
}

bool Watcher::lookForLoss() {
  noticeDeaths();
  if (world.isRunning())
    for (Peer &peer : peers)
      if (world.leftBefore(peer.rank, world.currentRun()))
        world.abortLeft(peer.rank, world.currentRun());
  const AbortRecord *failure = world.failure();
  return failure && world.endsProcess(*failure);
}

void Watcher::noticeDeaths() {
  for (Peer &peer : peers) {
    if (peer.gone)
      continue;
    pollfd fd = {peer.pidfd, POLLIN, 0};
    if (poll(&fd, 1, 0) != 1)
      continue;
    peer.gone = true;
    // One that left in order is missed only when somebody needs it.
    if (world.segment(peer.rank).header().life.load() != Life::Closed)
      world.abort(peer.rank, FailureKind::Died,
                  "rank " + std::to_string(peer.rank) + " (process " +
                      std::to_string(peer.pid) + ") died");
  }
}

void Watcher::report() {
  announceLoss();
  std::string line = "piper: ";
  line += world.failure()->message;
  for (uint32_t rank : world.localRanks())
    line += "; " + describe(world, rank);
  for (char &c : line)
    if (c == '\n')
      c = ' ';
  line += "\n";
  size_t written = 0;
  while (written < line.size()) {
    ssize_t n =
        write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (n <= 0 && errno != EINTR)
      break;
    written += n > 0 ? size_t(n) : 0;
  }
}

} // namespace piper::runtime
