// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_PLAN_VALIDATOR_H
#define PIPER_RUNTIME_PLAN_VALIDATOR_H

#include "Actions.h"
#include "Arithmetic.h"

#include <set>
#include <unordered_map>

namespace piper::plan {

/// One pass over a plan; stops at the first error. Internal to this library.
class Validator {
public:
  explicit Validator(const Plan &plan) : plan(plan) {}
  bool run();

  std::string error;

private:
  /// A rank's place in a communicator; groupSize 0 = not a member.
  struct Member {
    uint32_t position = 0;
    uint32_t groupSize = 0;
  };
  /// What one class does on one communicator in one entry: its collectives, or
  /// its sends and receives, in order, as strings that members must share.
  struct Traffic {
    std::vector<std::string> collectives, sends, receives;
    /// Streams that issue them, -1 = none.
    int64_t collectiveStream = -1, sendStream = -1, receiveStream = -1;
  };
  using ClassTraffic = std::map<uint32_t, Traffic>;

  bool fail(std::string message);
  bool checkUnique(const std::string &name, std::set<std::string> &seen,
                   const char *what);
  bool checkSize(uint64_t bytes, const char *what);
  /// A tensor and each of its dimensions, also beside one that is zero.
  bool checkShape(const std::vector<uint64_t> &shape, uint64_t width);

  bool checkKernels();
  bool checkClasses();
  bool checkCommunicators();
  bool checkInputs();
  bool checkEntries();
  bool checkStates();
  bool checkSegment(const StateSegment &segment, uint64_t width);
  bool checkHostValues();

  bool checkEntry(const std::string &entry, uint32_t rankClass,
                  ClassTraffic &traffic);
  bool checkEvents(const StreamActions &streams);
  bool checkReleases(const StreamActions &streams, ClassTraffic &traffic);
  bool checkAction(const Action &action, uint32_t rankClass, uint32_t stream,
                   ClassTraffic &traffic);
  bool checkLaunch(const Action &action, uint32_t rankClass, uint32_t stream);
  bool checkMessage(const Action &action, uint32_t rankClass, uint32_t stream,
                    Traffic &traffic);
  bool checkCollective(const Action &action, uint32_t rankClass,
                       uint32_t stream, Traffic &traffic);
  bool checkOverlap(const Action &action, uint32_t rankClass);
  bool checkOperands(const Action &action, size_t addresses, size_t imm);
  bool checkStream(int64_t &used, uint32_t stream, const char *what);
  bool checkMatching(const std::string &entry,
                     const std::vector<ClassTraffic> &traffic);

  /// The address lies, with `bytes` behind it, inside its space for every rank
  /// of the class, and is a multiple of `alignment`.
  bool checkAddress(const Address &address, uint32_t rankClass, uint32_t stream,
                    uint64_t bytes, uint64_t alignment);
  bool checkCommunicator(uint64_t communicator);
  Member member(uint64_t communicator, uint32_t rank) const;
  /// Largest position that ranks of the class have; all must be members.
  bool maxPosition(uint32_t rankClass, int64_t communicator,
                   uint32_t &position);

  const Plan &plan;
  /// Where in the plan the check is, for messages.
  std::string context;
  std::vector<int32_t> rankClass;
  /// By communicator and rank; sparse, so that it is no larger than the plan.
  std::vector<std::unordered_map<uint32_t, Member>> members;
  /// Results of maxPosition by class and communicator.
  std::unordered_map<uint64_t, uint32_t> maxPositions;
};

} // namespace piper::plan

#endif // PIPER_RUNTIME_PLAN_VALIDATOR_H
