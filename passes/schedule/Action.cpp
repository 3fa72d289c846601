// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Action.cpp - one cell of a schedule --------------------------------===//

#include "passes/schedule/Action.h"
#include <charconv>

using namespace piper::schedule;

std::string piper::schedule::print(const Action &action) {
  return std::to_string(action.stage) + action.pass +
         std::to_string(action.microbatch);
}

/// Takes digits off the front of `text`.
static std::optional<int64_t> takeNumber(std::string_view &text) {
  int64_t number = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0)
    return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

std::optional<Action> piper::schedule::parseAction(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos)
    return std::nullopt;
  text = text.substr(first, text.find_last_not_of(blanks) - first + 1);

  std::optional<int64_t> stage = takeNumber(text);
  if (!stage || text.empty() ||
      std::string_view("FBIW").find(text.front()) == std::string_view::npos)
    return std::nullopt;
  char pass = text.front();
  text.remove_prefix(1);
  std::optional<int64_t> microbatch = takeNumber(text);
  if (!microbatch || !text.empty())
    return std::nullopt;
  return Action{*stage, pass, *microbatch};
}
