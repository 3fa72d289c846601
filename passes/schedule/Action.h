// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Action.h - one cell of a schedule ------------------------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_ACTION_H
#define PIPER_PASSES_SCHEDULE_ACTION_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piper::schedule {

/// One pass of one stage on one microbatch. Written `2F0`: stage, pass,
/// microbatch, as torch.distributed.pipelining does.
struct Action {
  int64_t stage;
  char pass; // F, B, I or W
  int64_t microbatch;

  bool operator==(const Action &other) const {
    return stage == other.stage && pass == other.pass &&
           microbatch == other.microbatch;
  }
};

std::string print(const Action &action);

/// Reads what `print` writes; blanks around it are allowed.
std::optional<Action> parseAction(std::string_view text);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_ACTION_H
