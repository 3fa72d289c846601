// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All ranks of a job on one machine, as one process sees them: the segments of
// its own ranks and of all others, the failure that ended the job if any, and
// the rendezvous of the hosts. Ranks of one process and of several use the same
// memory and the same code.
#ifndef PIPER_RUNTIME_COMM_WORLD_H
#define PIPER_RUNTIME_COMM_WORLD_H

#include "runtime/comm/Segment.h"

#include <functional>
#include <memory>

namespace piper::runtime {

class Watcher;

struct WorldOptions {
  /// Longest time that an awaited rank may go without progress.
  double timeoutSeconds = 300;
  /// After the loss of another process's rank, the time the host has to end
  /// this process before it is ended with exit code 3.
  double graceSeconds = 2;
  /// Called from another thread when another process's rank is lost.
  std::function<void()> onLoss;
};

/// Returns true if the host wants the wait to end (a signal arrived).
using Interrupt = std::function<bool()>;

class World {
public:
  /// Creates the segments of this process's ranks.
  World(std::shared_ptr<const plan::Plan> plan, uint64_t planSum,
        std::vector<uint32_t> localRanks, WorldOptions options = {});
  ~World();
  World(const World &) = delete;

  /// What other processes need to know to find this process's ranks.
  std::vector<std::string> handles() const;
  /// Maps the ranks of all other processes and begins to watch these. Handles
  /// of own ranks are skipped. Not needed if all ranks are local.
  void connect(const std::vector<std::string> &handles);
  /// Leaves the job in order. Idempotent; no stream may run.
  void close();
  /// After streams that could not be stopped: leaves all memory mapped.
  void abandon();

  const plan::Plan &plan() const { return *program; }
  const std::vector<uint32_t> &localRanks() const { return ownRanks; }
  bool isLocal(uint32_t rank) const;
  /// Ranks of this process among all.
  uint32_t size() const { return uint32_t(segments.size()); }
  Segment &segment(uint32_t rank) const { return *segments[rank]; }
  const plan::RankClass &classOf(uint32_t rank) const;
  const std::vector<std::string> &entryNames() const { return entries; }
  const WorldOptions &options() const { return settings; }
  /// How long a wait keeps its core before it sleeps.
  uint64_t spinNs() const { return spinTime; }

  /// Announces the next run of all ranks and returns its number, from 1.
  uint32_t beginRun(const std::string &entry);
  /// Says that a local rank is done with the current run.
  void finishRun(uint32_t rank);
  /// Number of the last run begun.
  uint32_t currentRun() const {
    return runNumber.load(std::memory_order_acquire);
  }
  bool isRunning() const;

  /// Waits until the hosts of all ranks are here, between runs.
  void barrier(const Interrupt &interrupted);

  /// Shows the hosts of all other processes at most ExchangePart::kBytes and
  /// does not wait for theirs. False if one that is there already begins with
  /// other bytes than this one: the first kAgreed are to be equal.
  bool offer(const std::string &mine);
  /// Waits for what all others offered; by rank. Once for each offer, before
  /// anything else is given.
  std::vector<std::string> collect(const Interrupt &interrupted);
  /// Whether somebody is known to have offered something else.
  bool offersDiffer() const;
  /// Stops the streams of all ranks: they run what nobody agreed on. Hosts may
  /// still exchange what they have to say; nothing else goes on.
  void stopDiffering();
  bool differs() const {
    return segment(ownRanks[0]).header().differs.load() != 0;
  }
  static constexpr uint64_t kAgreed = 8;

  /// Gives `mine` to the hosts of all other processes, which give theirs; by
  /// rank. A process that has all ranks gets its own alone. Between runs.
  std::vector<std::string> exchange(const std::string &mine,
                                    const Interrupt &interrupted);

  /// Posts a failure that concerns all ranks; the first one stays.
  void abort(uint32_t rank, FailureKind kind, const std::string &message);
  bool aborted(uint32_t localRank) const {
    const RankHeader &header = segment(localRank).header();
    return header.abort.state.load(std::memory_order_acquire) !=
               AbortRecord::None ||
           header.differs.load(std::memory_order_relaxed) != 0;
  }
  /// The record of this process, complete, or null.
  const AbortRecord *failure() const;
  /// Whether the host is not to decide what follows: another process's rank is
  /// lost, or others gave up on one of this process.
  bool endsProcess(const AbortRecord &record) const;
  /// Throws what the record, if any, means for this process.
  void throwIfLost();
  /// The same, and if the ranks differ.
  void throwIfAborted();
  /// Whether the rank ended in order without having done `run`.
  bool leftBefore(uint32_t rank, uint32_t run) const;
  void abortLeft(uint32_t rank, uint32_t run);

private:
  friend class Watcher;

  /// The bytes of `text` from `first`, as many as a part holds.
  void givePart(const std::string &text, uint64_t first);
  const ExchangePart &awaitPart(uint32_t rank, const Interrupt &interrupted);
  /// Waits until the host of `rank` has counted `word` up to `target`.
  /// `lookFor` posts a failure if it never will.
  void awaitHost(uint32_t rank, SharedWord &word, uint32_t target,
                 const Interrupt &interrupted,
                 const std::function<void()> &lookFor);

  std::shared_ptr<const plan::Plan> program;
  uint64_t planSum;
  std::vector<uint32_t> ownRanks;
  WorldOptions settings;
  std::vector<std::string> entries;
  std::vector<int64_t> classNumbers;
  std::vector<std::unique_ptr<Segment>> segments;
  std::unique_ptr<Watcher> watcher;
  std::atomic<uint32_t> runNumber{0};
  uint32_t barrierNumber = 0;
  uint32_t partNumber = 0;
  uint64_t spinTime = 0;
  bool closed = false;
  int owner = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_WORLD_H
