// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Schedules.cpp - schedules by name ----------------------------------===//

#include "passes/schedule/Schedules.h"

using namespace piper::schedule;

namespace {
struct Entry {
  std::string_view name;
  Table (*build)(const Sizes &);
};
} // namespace

static constexpr Entry entries[] = {{"gpipe", gpipe}, {"1f1b", oneFOneB}};

std::vector<std::string> piper::schedule::getScheduleNames() {
  std::vector<std::string> names;
  for (const Entry &entry : entries)
    names.emplace_back(entry.name);
  return names;
}

static std::string unknownSchedule(std::string_view name) {
  std::string message = "expected a schedule among";
  for (const std::string &known : getScheduleNames())
    message += " " + known;
  return message + ", got " + std::string(name);
}

std::optional<Table> piper::schedule::buildSchedule(std::string_view name,
                                                    const Sizes &sizes,
                                                    std::string &error) {
  const Entry *found = nullptr;
  for (const Entry &entry : entries)
    if (entry.name == name)
      found = &entry;
  if (!found) {
    error = unknownSchedule(name);
    return std::nullopt;
  }
  if (sizes.stages < 1 || sizes.microbatches < 1) {
    error = "expected at least 1 stage and 1 microbatch, got " +
            std::to_string(sizes.stages) + " and " +
            std::to_string(sizes.microbatches);
    return std::nullopt;
  }
  if (sizes.ranks != sizes.stages) {
    error = "expected one stage per rank for " + std::string(name) + ", got " +
            std::to_string(sizes.stages) + " stages on " +
            std::to_string(sizes.ranks) + " ranks";
    return std::nullopt;
  }
  return found->build(sizes);
}

std::string piper::schedule::print(const Table &table) {
  std::string text;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":";
    for (const Action &action : table[rank])
      text += " " + print(action);
    text += "\n";
  }
  return text;
}
