// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of this process: its streams, events and prepared actions.
#ifndef PIPER_RUNTIME_LOCALRANK_H
#define PIPER_RUNTIME_LOCALRANK_H

#include "runtime/actions/Actions.h"

#include <map>

namespace piper::runtime {

/// When a stream did one action, in CLOCK_MONOTONIC nanoseconds; on a device
/// that keeps timelines, by these.
struct TraceEvent {
  uint32_t action = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  /// Part of it spent waiting for others.
  uint64_t waited = 0;
};

struct StreamStats {
  uint64_t actions = 0;
  uint64_t skipped = 0;
  uint64_t waitedNs = 0;
  /// End of the highest arena byte that executed actions touched.
  uint64_t arenaEnd = 0;
};

class LocalRank {
public:
  LocalRank(World &world, Device &device, uint32_t rank,
            const std::vector<int> &cores);

  /// Starts the streams on `entry`; returns at once. `done` counts up by one
  /// when the rank has finished or failed.
  void start(const std::string &entry, uint32_t run, uint64_t flags,
             const std::vector<HostInput> &inputs, bool trace, uint64_t begin,
             SharedWord &done);

  /// When the last stream finished the last run; 0 without timelines.
  uint64_t finishedAt() const;

  uint32_t rank() const { return number; }
  size_t numStreams() const { return streams.size(); }
  const std::string &streamName(size_t stream) const;
  const StreamStats &stats(size_t stream) const {
    return streams[stream]->stats;
  }
  /// Of the last run that was traced, in order.
  const std::vector<TraceEvent> &trace(size_t stream) const {
    return streams[stream]->trace;
  }
  /// Bytes of an input that actions of an entry read, as [first, last).
  std::pair<uint64_t, uint64_t> inputRange(const std::string &entry,
                                           uint32_t input) const;

private:
  using Actions = std::vector<PreparedAction>;
  struct StreamState {
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<Waiter> waiter;
    ActionContext context;
    StreamStats stats;
    std::vector<TraceEvent> trace;
  };

  void prepare(Device &device);
  PreparedAction prepareAction(Device &device, const plan::Action &record,
                               const plan::StreamActions &entry);
  Operand resolve(const plan::Address &address) const;
  void execute(StreamState &state, const Actions &actions, bool trace);
  void executeAll(StreamState &state, const Actions &actions, bool trace);
  void finish(StreamState &state, size_t numActions);

  World &world;
  uint32_t number;
  const plan::RankClass &rankClass;
  std::unique_ptr<SharedWord[]> events;
  std::vector<std::unique_ptr<Communicator>> ownCommunicators;
  std::vector<Communicator *> communicators;
  std::map<std::string, std::vector<Actions>> entries;
  /// Streams last, so that their threads end before what they use.
  std::vector<std::unique_ptr<StreamState>> streams;
  std::vector<HostInput> inputs;
  std::atomic<uint32_t> running{0};
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_LOCALRANK_H
