// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Problem.cpp - a grid with arrows -----------------------------------===//

#include "passes/schedule/library/Problem.h"
#include <algorithm>
#include <map>
#include <set>

using namespace piper::schedule;

/// Steps shown before and behind a marked one.
static constexpr size_t context = 6;
/// A longer grid is cut.
static constexpr size_t fullSteps = 40;

static std::string pad(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

static std::set<size_t> findShownSteps(const Table &table,
                                       const Problem &problem) {
  size_t numSteps = 0;
  for (const Row &row : table)
    numSteps = std::max(numSteps, row.size());
  std::set<size_t> shown;
  for (size_t step = 0; step < numSteps && numSteps <= fullSteps; ++step)
    shown.insert(step);
  for (const Mark &mark : problem.marks) {
    size_t column = mark.position.column;
    for (size_t step = column - std::min(column, context);
         step < std::min(numSteps, column + context + 1); ++step)
      shown.insert(step);
  }
  return shown;
}

namespace {
class Grid {
public:
  Grid(const Table &table, const Problem &problem)
      : table(table), shown(findShownSteps(table, problem)) {
    for (const Mark &mark : problem.marks)
      notes[mark.position.column].push_back(mark);
    for (size_t rank = 0; rank < table.size(); ++rank) {
      widths.push_back(std::string("rank " + std::to_string(rank)).size());
      for (size_t step : shown)
        widths[rank] = std::max(widths[rank], getText(rank, step).size());
    }
  }

  std::string print() const;

private:
  std::string getText(size_t rank, size_t step) const {
    const Row &row = table[rank];
    return step < row.size() ? piper::schedule::print(row[step]) : "";
  }
  std::string printLine(size_t step) const;

  const Table &table;
  std::set<size_t> shown;
  std::map<size_t, std::vector<Mark>> notes;
  std::vector<size_t> widths;
};
} // namespace

static constexpr size_t labelWidth = 10;

std::string Grid::printLine(size_t step) const {
  std::string line = pad("step " + std::to_string(step), labelWidth);
  for (size_t rank = 0; rank < table.size(); ++rank)
    line += " " + pad(getText(rank, step), widths[rank]);
  auto found = notes.find(step);
  if (found != notes.end())
    for (const Mark &mark : found->second)
      line += " <-- rank " + std::to_string(mark.position.rank) +
              (mark.note.empty() ? "" : " " + mark.note);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Grid::print() const {
  std::string text = pad("", labelWidth);
  for (size_t rank = 0; rank < table.size(); ++rank)
    text += " " + pad("rank " + std::to_string(rank), widths[rank]);
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  std::optional<size_t> last;
  for (size_t step : shown) {
    if (step != (last ? *last + 1 : 0))
      text += "...\n";
    text += printLine(step);
    last = step;
  }
  return text;
}

std::string piper::schedule::printProblem(const Table &table,
                                          const Problem &problem) {
  std::string text = problem.message;
  if (!problem.marks.empty())
    text += "\n" + Grid(table, problem).print();
  return text;
}
