// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Action.cpp - one thing that a rank does ----------------------------===//

#include "passes/schedule/library/Action.h"
#include <charconv>
#include <tuple>

using namespace piper::schedule;

namespace {
struct Name {
  std::string_view text;
  Kind kind;
};
} // namespace

// The first name of a kind is the one that is printed.
static constexpr Name names[] = {
    {"F", Kind::F},
    {"B", Kind::B},
    {"I", Kind::I},
    {"W", Kind::W},
    {"SEND_F", Kind::SendF},
    {"RECV_F", Kind::RecvF},
    {"SEND_B", Kind::SendB},
    {"RECV_B", Kind::RecvB},
    {"UNSHARD", Kind::Unshard},
    {"RESHARD", Kind::Reshard},
    {"REDUCE_GRAD", Kind::ReduceGrad},
    {"SF", Kind::SendF},
    {"RF", Kind::RecvF},
    {"SB", Kind::SendB},
    {"RB", Kind::RecvB},
};

bool Action::operator<(const Action &other) const {
  return std::tie(stage, kind, microbatch) <
         std::tie(other.stage, other.kind, other.microbatch);
}

std::string piper::schedule::print(const Action &action) {
  std::string text = std::to_string(action.stage);
  for (const Name &name : names)
    if (name.kind == action.kind) {
      text += name.text;
      break;
    }
  if (action.microbatch >= 0)
    text += std::to_string(action.microbatch);
  return text;
}

std::string_view piper::schedule::trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// No stage and no microbatch has a larger number, so that sums don't overflow.
static constexpr int64_t maxNumber = (int64_t(1) << 31) - 1;

/// Takes digits off the front of `text`.
static std::optional<int64_t> takeNumber(std::string_view &text) {
  int64_t number = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > maxNumber)
    return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

std::optional<Action> piper::schedule::parseAction(std::string_view text) {
  text = trim(text);
  std::optional<int64_t> stage = takeNumber(text);
  if (!stage)
    return std::nullopt;
  std::string_view word = text.substr(0, text.find_first_of("0123456789"));
  const Name *found = nullptr;
  for (const Name &name : names)
    if (name.text == word)
      found = &name;
  if (!found)
    return std::nullopt;
  text.remove_prefix(word.size());
  bool ofStage = !isCompute(found->kind) && !isTransfer(found->kind);
  if (ofStage && text.empty())
    return Action{*stage, found->kind, -1};
  std::optional<int64_t> microbatch = takeNumber(text);
  if (!microbatch || !text.empty())
    return std::nullopt;
  return Action{*stage, found->kind, *microbatch};
}
