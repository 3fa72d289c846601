// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Problem.cpp - a grid with arrows -----------------------------------===//

#include "passes/schedule/library/Problem.h"
#include <algorithm>
#include <map>
#include <set>

using namespace piper::schedule;

/// Steps shown before and behind a marked one.
static constexpr size_t context = 6;
/// A longer grid is cut, and of a wider one only the marked ranks are shown.
static constexpr size_t fullSteps = 40, fullRanks = 32;

static std::string pad(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

static std::string trimRight(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

static std::set<size_t> findShownSteps(const Grid &grid,
                                       const std::vector<Mark> &marks) {
  size_t numSteps = 0;
  for (const auto &row : grid.rows)
    numSteps = std::max(numSteps, row.size());
  std::set<size_t> shown;
  for (size_t step = 0; step < numSteps && numSteps <= fullSteps; ++step)
    shown.insert(step);
  for (const Mark &mark : marks) {
    size_t column = mark.position.column;
    for (size_t step = column - std::min(column, context);
         step < std::min(numSteps, column + context + 1); ++step)
      shown.insert(step);
  }
  return shown;
}

static std::vector<size_t> findShownRows(const Grid &grid,
                                         const std::vector<Mark> &marks) {
  std::set<size_t> shown;
  for (size_t row = 0; row < grid.rows.size(); ++row)
    if (grid.rows.size() <= fullRanks)
      shown.insert(row);
  for (const Mark &mark : marks)
    shown.insert(mark.position.rank);
  return {shown.begin(), shown.end()};
}

namespace {
class Printer {
public:
  Printer(const Grid &grid, const std::vector<Mark> &marks)
      : grid(grid), shown(findShownSteps(grid, marks)),
        rows(findShownRows(grid, marks)) {
    for (const Mark &mark : marks)
      notes[mark.position.column].push_back(mark);
    for (size_t row : rows) {
      size_t width = getTitle(row).size();
      for (size_t step : shown)
        width = std::max(width, getText(row, step).size());
      widths.push_back(width);
    }
  }

  std::string print() const;

private:
  std::string getTitle(size_t row) const {
    return "rank " + std::to_string(grid.ranks[row]);
  }
  std::string getText(size_t row, size_t step) const {
    return step < grid.rows[row].size() ? grid.rows[row][step] : "";
  }
  std::string printStep(size_t step) const;

  const Grid &grid;
  std::set<size_t> shown;
  std::vector<size_t> rows;   // that are shown
  std::vector<size_t> widths; // of each of them
  std::map<size_t, std::vector<Mark>> notes;
};
} // namespace

static constexpr size_t labelWidth = 10;

std::string Printer::printStep(size_t step) const {
  std::string line = pad("step " + std::to_string(step), labelWidth);
  for (size_t i = 0; i < rows.size(); ++i)
    line += " " + pad(getText(rows[i], step), widths[i]);
  auto found = notes.find(step);
  if (found != notes.end())
    for (const Mark &mark : found->second)
      line += " <-- " + getTitle(mark.position.rank) +
              (mark.note.empty() ? "" : " " + mark.note);
  return trimRight(line);
}

std::string Printer::print() const {
  std::string title = pad("", labelWidth);
  for (size_t i = 0; i < rows.size(); ++i)
    title += " " + pad(getTitle(rows[i]), widths[i]);
  std::string text = trimRight(title);
  size_t next = 0;
  for (size_t step : shown) {
    if (step != next)
      text += "...\n";
    text += printStep(step);
    next = step + 1;
  }
  return text;
}

std::string piper::schedule::print(const Grid &grid,
                                   const std::vector<Mark> &marks) {
  return Printer(grid, marks).print();
}

std::string piper::schedule::printProblem(const Table &table,
                                          const Problem &problem) {
  if (problem.marks.empty())
    return problem.message;
  Grid grid;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    grid.ranks.push_back(rank);
    grid.rows.emplace_back();
    for (const Cell &cell : table[rank])
      grid.rows.back().push_back(print(cell));
  }
  return problem.message + "\n" + print(grid, problem.marks);
}
