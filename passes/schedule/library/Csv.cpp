// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Csv.cpp - schedules as spreadsheets --------------------------------===//

#include "passes/schedule/library/Csv.h"
#include "passes/schedule/library/Prove.h"
#include <algorithm>

using namespace piper::schedule;

namespace {
/// Part of a line.
struct Field {
  size_t begin, length;
};

struct Line {
  std::string_view text;
  std::vector<Field> fields;

  std::string_view get(const Field &field) const {
    return text.substr(field.begin, field.length);
  }
};

class Reader {
public:
  Reader(std::string_view text, std::string_view source);

  std::optional<Table> read();
  const std::string &getError() const { return error; }

private:
  bool readCell(std::string_view text, Cell &cell);
  bool readRow(size_t rank);
  void fail(Position position, const std::string &message);
  std::string pointAt(Position position) const;

  std::string_view source;
  std::vector<Line> lines;
  Table table;
  std::string error, cellError;
};
} // namespace

static constexpr std::string_view overlap = "OVERLAP_F_B";

/// Commas between quotes do not count.
static std::vector<Field> splitFields(std::string_view line) {
  std::vector<Field> fields;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i < line.size() && line[i] == '"')
      quoted = !quoted;
    if (i == line.size() || (line[i] == ',' && !quoted)) {
      fields.push_back({begin, i - begin});
      begin = i + 1;
    }
  }
  return fields;
}

/// A field without its blanks and quotes.
static std::string_view strip(std::string_view field) {
  field = trim(field);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    field = trim(field.substr(1, field.size() - 2));
  return field;
}

Reader::Reader(std::string_view text, std::string_view source)
    : source(source) {
  constexpr std::string_view byteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, byteOrderMark.size()) == byteOrderMark)
    text.remove_prefix(byteOrderMark.size());
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    lines.push_back({line, splitFields(line)});
  }
  auto isBlank = [](const Line &line) {
    return line.text.find_first_not_of(" \t,\"") == std::string_view::npos;
  };
  while (!lines.empty() && isBlank(lines.back()))
    lines.pop_back();
}

/// The line of a row with a caret below a cell; what is far from it is left
/// out.
std::string Reader::pointAt(Position position) const {
  constexpr size_t before = 40, length = 100;
  const Line &line = lines[position.rank];
  Field field = line.fields[position.column];
  std::string_view cell = line.get(field);
  size_t blanks = std::min(cell.find_first_not_of(" \t"), cell.size());
  size_t column = field.begin + (blanks == cell.size() ? 0 : blanks);
  size_t first = column - std::min(column, before);
  std::string shown(line.text.substr(first, length));
  for (char &c : shown)
    if (c < ' ' || c > '~')
      c = c == '\t' ? ' ' : '?';
  size_t width = std::max<size_t>(1, trim(cell).size());
  return "    " + shown + "\n    " + std::string(column - first, ' ') +
         std::string(std::min(width, length), '^') + "\n";
}

void Reader::fail(Position position, const std::string &message) {
  size_t endOfLine = message.find('\n');
  error = std::string(source) + ": row " + std::to_string(position.rank + 1) +
          ", column " + std::to_string(position.column + 1) + ": " +
          message.substr(0, endOfLine) + "\n";
  if (position.column < lines[position.rank].fields.size())
    error += pointAt(position);
  if (endOfLine != std::string::npos)
    error += message.substr(endOfLine + 1);
  error.erase(error.find_last_not_of('\n') + 1);
}

/// Whatever a file holds, a message quotes little of it.
static std::string quote(std::string_view text) {
  std::string quoted;
  for (char c : text.substr(0, 40))
    quoted += c < ' ' || c > '~' ? '?' : c;
  return "'" + quoted + (text.size() > 40 ? "...'" : "'");
}

bool Reader::readCell(std::string_view text, Cell &cell) {
  if (text.empty())
    return true;
  if (text.front() != '(') {
    std::optional<Action> action = parseAction(text);
    if (!action) {
      cellError = "expected an action such as 2F0 (stage; F, B, I or W; "
                  "microbatch), got " +
                  quote(text);
      return false;
    }
    cell.push_back(*action);
    return true;
  }
  size_t close = text.find(')');
  if (close == std::string_view::npos ||
      trim(text.substr(close + 1)) != overlap) {
    cellError = "expected actions that overlap, such as (0F3;3B1)OVERLAP_F_B, "
                "got " +
                quote(text);
    return false;
  }
  std::string_view members = text.substr(1, close - 1);
  while (true) {
    size_t end = members.find(';');
    if (trim(members.substr(0, end)).empty()) {
      cellError = "expected actions between ( and ), got " + quote(text);
      return false;
    }
    if (members.front() == '(' || !readCell(trim(members.substr(0, end)), cell))
      return false;
    if (end == std::string_view::npos)
      return true;
    members.remove_prefix(end + 1);
  }
}

bool Reader::readRow(size_t rank) {
  const Line &line = lines[rank];
  Row row;
  bool hasActions = false;
  for (const Field &field : line.fields) {
    row.emplace_back();
    if (!readCell(strip(line.get(field)), row.back())) {
      fail({rank, row.size() - 1}, cellError);
      return false;
    }
    hasActions |= !row.back().empty();
  }
  if (!hasActions) {
    fail({rank, 0}, "expected actions of rank " + std::to_string(rank) +
                        ", got an empty row");
    return false;
  }
  // Trailing commas mean nothing.
  while (row.back().empty())
    row.pop_back();
  table.push_back(std::move(row));
  return true;
}

std::optional<Table> Reader::read() {
  if (lines.empty()) {
    error = std::string(source) +
            ": expected a row of actions for every rank, got an empty file";
    return std::nullopt;
  }
  for (size_t rank = 0; rank < lines.size(); ++rank)
    if (!readRow(rank))
      return std::nullopt;
  std::optional<Problem> problem = proveTable(table);
  if (!problem)
    return std::move(table);
  Position position =
      problem->marks.empty() ? Position{0, 0} : problem->marks[0].position;
  fail(position, problem->marks.size() > 1 ? printProblem(table, *problem)
                                           : problem->message);
  return std::nullopt;
}

std::optional<Table> piper::schedule::readCsv(std::string_view text,
                                              std::string_view source,
                                              std::string &error) {
  Reader reader(text, source);
  std::optional<Table> table = reader.read();
  error = reader.getError();
  return table;
}

std::string piper::schedule::writeCsv(const Table &table) {
  std::string text;
  for (const Row &row : table) {
    for (size_t column = 0; column < row.size(); ++column)
      text += (column ? "," : "") + print(row[column]);
    text += "\n";
  }
  return text;
}
