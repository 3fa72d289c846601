// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a rank shows to all others at the start of its segment.
#ifndef PIPER_RUNTIME_COMM_RANKHEADER_H
#define PIPER_RUNTIME_COMM_RANKHEADER_H

#include "runtime/comm/SharedWord.h"

namespace piper::runtime {

enum class Phase : uint32_t { Idle, Running, Waiting };

/// What a stream does right now. Its thread writes, anybody reads to explain a
/// failure; nothing is synchronised through it.
struct alignas(64) StreamStatus {
  std::atomic<Phase> phase{Phase::Idle};
  /// Number of the action in the stream's list.
  std::atomic<uint32_t> action{0};
  /// Rank that it waits for, -1 = another stream of its own rank.
  std::atomic<int32_t> awaited{-1};
};

enum class FailureKind : uint32_t {
  /// The process died.
  Died,
  /// The process ended in order, but too early.
  Left,
  /// The rank raised an error.
  Failed,
  /// The rank made no progress for the time limit.
  Stalled,
  /// The host was interrupted.
  Interrupted,
};

/// The first failure that concerns a rank, written by whoever notices. Once it
/// is set, every wait of the rank ends.
struct AbortRecord {
  enum State : uint32_t { None, Writing, Ready };
  std::atomic<uint32_t> state{None};
  uint32_t rank = 0;
  FailureKind kind = FailureKind::Died;
  char message[500] = {};
};

/// What the host of a rank gives to all others, one part at a time.
struct ExchangePart {
  static constexpr uint64_t kBytes = 4096;
  /// Of the whole, of which this is a part.
  uint64_t total = 0;
  char bytes[kBytes] = {};
};

enum class Life : uint32_t { Starting, Ready, Closed };

struct RankHeader {
  /// Identifies the plan, so that processes with different programs notice.
  std::atomic<uint64_t> planSum{0};
  std::atomic<Life> life{Life::Starting};
  /// Number of the entry of the current or last run.
  std::atomic<uint32_t> entry{0};
  SharedWord runsStarted;
  SharedWord runsFinished;
  /// Host barriers that this rank arrived at.
  SharedWord barriers;
  /// Parts that this rank has given; part n is in slot n % 2. Who gives part
  /// n + 1 has read part n of all others, so nobody reads what is overwritten.
  SharedWord parts;
  ExchangePart slots[2];
  /// Set once hosts have offered different things and one of them runs: every
  /// wait of a stream ends, while hosts may still tell each other why.
  std::atomic<uint32_t> differs{0};
  AbortRecord abort;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_RANKHEADER_H
