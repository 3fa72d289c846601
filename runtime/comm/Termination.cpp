// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Termination.h"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <poll.h>
#include <unistd.h>

namespace piper::runtime {
namespace {

/// Read by the signal handler, so: a fixed table of atomics. Ranks beyond it
/// are watched all the same, only their death does not hold back SIGTERM until
/// it is noticed.
struct Guard {
  std::atomic<int> pidfd{-1};
  std::atomic<uint32_t> rank{0};
  std::atomic<const RankHeader *> peer{nullptr};
  std::atomic<const RankHeader *> own{nullptr};
};
constexpr int kMaxGuards = 1024;
Guard guards[kMaxGuards];
std::atomic<bool> lost{false};
std::mutex mutex;
int numGuards = 0;
struct sigaction previous;
/// A forked child inherits the handler, but not the memory that guards read.
pid_t owner = 0;

bool isLost(const Guard &guard) {
  int pidfd = guard.pidfd.load();
  if (pidfd < 0)
    return false;
  const RankHeader *own = guard.own.load(), *peer = guard.peer.load();
  uint32_t state = own->abort.state.load();
  if (state == AbortRecord::Writing ||
      (state == AbortRecord::Ready && own->abort.rank == guard.rank.load()))
    return true;
  pollfd fd = {pidfd, POLLIN, 0};
  return poll(&fd, 1, 0) == 1 && peer->life.load() != Life::Closed;
}

void onTerminate(int number, siginfo_t *info, void *context) {
  int code = errno;
  bool holdBack = false;
  if (getpid() == owner) {
    holdBack = lost.load();
    for (const Guard &guard : guards)
      holdBack = holdBack || isLost(guard);
  }
  errno = code;
  if (holdBack)
    return;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler == SIG_DFL) {
    ::signal(number, SIG_DFL);
    raise(number);
  } else if (previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  }
}

bool isInstalled(const struct sigaction &action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == onTerminate;
}

void install() {
  struct sigaction current, action = {};
  if (sigaction(SIGTERM, nullptr, &current) != 0 || isInstalled(current))
    return;
  previous = current;
  action.sa_sigaction = onTerminate;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

} // namespace

void guardTermination(int pidfd, uint32_t rank, const RankHeader &peer,
                      const RankHeader &own) {
  std::lock_guard<std::mutex> lock(mutex);
  owner = getpid();
  ++numGuards;
  install();
  for (Guard &guard : guards) {
    if (guard.pidfd.load() >= 0)
      continue;
    guard.rank.store(rank);
    guard.peer.store(&peer);
    guard.own.store(&own);
    guard.pidfd.store(pidfd);
    return;
  }
}

void unguardTermination(int pidfd) {
  std::lock_guard<std::mutex> lock(mutex);
  for (Guard &guard : guards)
    if (guard.pidfd.load() == pidfd)
      guard.pidfd.store(-1);
  if (--numGuards > 0 || lost.load())
    return;
  // Put back what was there, unless the host installed its own meanwhile.
  struct sigaction current;
  if (sigaction(SIGTERM, nullptr, &current) == 0 && isInstalled(current))
    sigaction(SIGTERM, &previous, nullptr);
}

void renewTerminationGuard() {
  std::lock_guard<std::mutex> lock(mutex);
  if (numGuards > 0)
    install();
}

void announceLoss() { lost.store(true); }

} // namespace piper::runtime
