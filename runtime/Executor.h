// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Executes a plan on the ranks of this process.
#ifndef PIPER_RUNTIME_EXECUTOR_H
#define PIPER_RUNTIME_EXECUTOR_H

#include "runtime/LocalRank.h"

namespace piper::runtime {

/// A tensor of the host: `bytes` bytes, which are bytes [firstByte,
/// firstByte + bytes) of the global tensor.
struct HostTensor {
  char *data = nullptr;
  uint64_t bytes = 0;
  uint64_t firstByte = 0;
};

/// The value of a scalar, in the scalar's own type.
struct ScalarValue {
  uint32_t scalar = 0;
  double real = 0;
  int64_t integer = 0;
};

class Executor {
public:
  /// Loads a validated plan for `localRanks`. `objects` must have been loaded
  /// into the device.
  Executor(std::shared_ptr<const plan::Plan> plan, uint64_t planSum,
           std::shared_ptr<Device> device, std::vector<uint32_t> localRanks,
           WorldOptions options = {});
  ~Executor();

  /// Meets the other processes' ranks; see World::connect. Needed before run
  /// unless all ranks are local.
  void connect(const std::vector<std::string> &handles);
  World &world() { return *shared; }
  const plan::Plan &plan() const { return *program; }

  /// Runs an entry on all local ranks and waits for them. Inputs in the order
  /// of the plan. Throws Error, RankLost or Interrupted.
  void run(const std::string &entry, uint64_t flags,
           const std::vector<HostTensor> &inputs,
           const std::vector<ScalarValue> &scalars, bool trace = false,
           const Interrupt &interrupted = {});

  /// What the last run took by the timelines of the local ranks' device; 0 if
  /// it keeps none.
  uint64_t durationNs() const;

  const std::vector<std::unique_ptr<LocalRank>> &ranks() const {
    return locals;
  }

  /// Bytes of an output on the lowest local rank that has it; null if none.
  const char *output(const std::string &name) const;

  void close();

private:
  std::vector<HostInput> checkInputs(const std::string &entry,
                                     const std::vector<HostTensor> &inputs);
  void writeScalars(const std::vector<ScalarValue> &scalars);
  void createRanks();
  /// Waits until all local ranks finished the current run.
  void awaitRanks(const Interrupt &interrupted);

  std::shared_ptr<const plan::Plan> program;
  std::shared_ptr<Device> device;
  std::unique_ptr<World> shared;
  std::vector<std::unique_ptr<LocalRank>> locals;
  /// Runs finished, added up over the local ranks.
  std::unique_ptr<SharedWord> finished;
  uint32_t awaited = 0;
  /// When the last run began.
  uint64_t begunAt = 0;
  bool abandoned = false;
  bool closed = false;
  int owner = 0;
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_EXECUTOR_H
