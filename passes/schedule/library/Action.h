// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Action.h - one thing that a rank does --------------------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_ACTION_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_ACTION_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piper::schedule {

enum class Kind : uint8_t {
  F, // forward
  B, // whole backward
  I, // gradient of the input
  W, // gradient of the weights, after I
  // What a stage sends on and takes in: outputs in the forward, gradients in
  // the backward.
  SendF,
  RecvF,
  SendB,
  RecvB,
  // Sharded parameters and gradients, which concern a stage as a whole. They
  // are read and written, and change nothing about the order of computing.
  Unshard,
  Reshard,
  ReduceGrad,
};

/// One kind of work of one stage on one microbatch. Written `2F0` (stage, kind,
/// microbatch) as torch.distributed.pipelining does; communication is
/// `2SEND_F0`, or shorter `2SF0`.
struct Action {
  int64_t stage;
  Kind kind;
  int64_t microbatch; // -1 where the kind concerns all of them

  bool operator==(const Action &other) const {
    return stage == other.stage && kind == other.kind &&
           microbatch == other.microbatch;
  }
  bool operator!=(const Action &other) const { return !(*this == other); }
  bool operator<(const Action &other) const;
};

inline bool isCompute(Kind kind) { return kind <= Kind::W; }
/// The passes that hand a gradient to the stage before.
inline bool isBackward(Kind kind) { return kind == Kind::B || kind == Kind::I; }
inline bool isSend(Kind kind) {
  return kind == Kind::SendF || kind == Kind::SendB;
}
inline bool isRecv(Kind kind) {
  return kind == Kind::RecvF || kind == Kind::RecvB;
}
inline bool isTransfer(Kind kind) { return isSend(kind) || isRecv(kind); }

std::string print(const Action &action);

/// Reads what `print` writes; blanks around it are allowed.
std::optional<Action> parseAction(std::string_view text);

/// `text` without blanks at its ends.
std::string_view trim(std::string_view text);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_ACTION_H
