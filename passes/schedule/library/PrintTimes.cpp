// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PrintTimes.cpp - simulated times as text ---------------------------===//

#include "passes/schedule/library/Simulate.h"
#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace piper::schedule;

/// More columns than anybody reads.
static constexpr double maxColumns = 20000;

static std::string formatNumber(double number) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

static std::string padLeft(const std::string &text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string piper::schedule::printTimes(const Times &times) {
  std::string text = "makespan " + formatNumber(times.makespan) + ", bubble " +
                     formatNumber(times.bubble()) + "\n";
  constexpr size_t width = 11;
  for (const char *title :
       {"rank", "first start", "last end", "busy", "bubble", "peak live"})
    text += padLeft(title, title[0] == 'r' ? 4 : width + 1);
  text += "\n";
  for (size_t rank = 0; rank < times.ranks.size(); ++rank) {
    const RankTimes &line = times.ranks[rank];
    text += padLeft(std::to_string(rank), 4);
    for (double value :
         {line.firstStart, line.lastEnd, line.busy, line.bubble()})
      text += padLeft(formatNumber(value), width + 1);
    text += padLeft(std::to_string(line.peakLive), width + 1) + "\n";
  }
  return text;
}

/// The shortest duration, but not so short that lines have no end.
static double findUnit(const Times &times) {
  double unit = times.makespan;
  for (const auto &row : times.cells)
    for (const Span &span : row)
      if (span.end > span.start)
        unit = std::min(unit, span.end - span.start);
  return std::max(unit, times.makespan / maxColumns);
}

static size_t findWidth(const Table &table) {
  size_t width = 2;
  for (const Row &row : table)
    for (const Cell &cell : row)
      // What several actions share is as wide as their times together.
      for (const Action &action : cell)
        width = std::max(width, print(action).size());
  return width + 1;
}

/// Actions in their cell, one beside the other.
static std::string labelCell(const Cell &cell) {
  std::string label;
  for (const Action &action : cell)
    label += (label.empty() ? "" : "|") + print(action);
  return label;
}

std::string piper::schedule::printTimeline(const Table &table,
                                           const Times &times) {
  double unit = findUnit(times);
  if (!(unit > 0))
    return "";
  size_t width = findWidth(table);
  auto getColumn = [&](double time) {
    return static_cast<size_t>(std::llround(time / unit)) * width;
  };
  size_t labelWidth = std::to_string(table.size() - 1).size();
  std::string text;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    std::string line(getColumn(times.makespan), ' ');
    for (size_t column = 0; column < table[rank].size(); ++column) {
      Span span = times.cells[rank][column];
      size_t begin = getColumn(span.start), end = getColumn(span.end);
      if (end <= begin)
        continue;
      std::string label = labelCell(table[rank][column]);
      label.resize(end - begin - 1, '-');
      line.replace(begin, label.size(), label);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += "rank " + padLeft(std::to_string(rank), labelWidth) + " | " + line +
            "\n";
  }
  return text;
}
