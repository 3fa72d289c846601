// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One function and one file per kind of action.
#ifndef PIPER_RUNTIME_ACTIONS_ACTIONS_H
#define PIPER_RUNTIME_ACTIONS_ACTIONS_H

#include "runtime/Communicator.h"
#include "runtime/Device.h"
#include "runtime/comm/Waiter.h"
#include "runtime/plan/Actions.h"

namespace piper::runtime {

/// An address with the rank's position put in.
struct Operand {
  plan::Space space;
  uint32_t index;
  uint64_t offset;
};

/// A host tensor of a run; `base` is where byte 0 of the global tensor would
/// be.
struct HostInput {
  char *base = nullptr;
};

/// What the actions of one stream of one rank see during a run.
struct ActionContext {
  DeviceStream *stream = nullptr;
  Waiter *waiter = nullptr;
  char *arena = nullptr;
  char *state = nullptr;
  char *scalar = nullptr;
  const HostInput *inputs = nullptr;
  /// By event number; the value is the run in which it was recorded last.
  SharedWord *events = nullptr;
  Communicator *const *communicators = nullptr;
  uint32_t run = 0;
  uint64_t flags = 0;
  /// Scratch for kernel arguments, large enough for any launch of the stream.
  std::vector<void *> arguments;

  char *address(const Operand &operand) const {
    switch (operand.space) {
    case plan::Space::Arena:
      return arena + operand.offset;
    case plan::Space::State:
      return state + operand.offset;
    case plan::Space::Scalar:
      return scalar + operand.offset;
    case plan::Space::Input:
      return shifted(inputs[operand.index].base, operand.offset);
    case plan::Space::Workspace:
      break;
    }
    return shifted(stream->workspace(), operand.offset);
  }

private:
  /// Integer arithmetic: a device without data has no tensors, no workspace.
  static char *shifted(char *base, uint64_t offset) {
    return reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(base) + offset);
  }
};

struct PreparedAction;
using ActionFunction = void (*)(ActionContext &, const PreparedAction &);

/// An action made ready for one rank.
struct PreparedAction {
  const plan::Action *record = nullptr;
  ActionFunction execute = nullptr;
  std::vector<Operand> operands;
  /// Launch: the kernel.
  const void *kernel = nullptr;
  /// Release: predicates of the channel's sends up to and with the one it
  /// waits for; empty if none of them has any.
  std::vector<uint32_t> sendPredicates;
  /// End of what it touches in the arena.
  uint64_t arenaEnd = 0;
};

void executeLaunch(ActionContext &context, const PreparedAction &action);
void executeCopy(ActionContext &context, const PreparedAction &action);
void executeFillZero(ActionContext &context, const PreparedAction &action);
void executeAccumulate(ActionContext &context, const PreparedAction &action);
void executeRecord(ActionContext &context, const PreparedAction &action);
void executeWait(ActionContext &context, const PreparedAction &action);
void executeSend(ActionContext &context, const PreparedAction &action);
void executeRecv(ActionContext &context, const PreparedAction &action);
void executeRelease(ActionContext &context, const PreparedAction &action);
void executeCollective(ActionContext &context, const PreparedAction &action);

ActionFunction functionOf(plan::Opcode opcode);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_ACTIONS_ACTIONS_H
