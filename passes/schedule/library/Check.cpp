// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Check.cpp - whether a table computes everything once ---------------===//

#include "passes/schedule/library/Check.h"
#include <set>

using namespace piper::schedule;

namespace {
using Result = std::optional<Problem>;

/// What a stage does with a microbatch.
struct Work {
  size_t rank;
  std::map<Kind, Position> actions;

  const Position *find(Kind kind) const {
    auto it = actions.find(kind);
    return it == actions.end() ? nullptr : &it->second;
  }
};

class Checker {
public:
  explicit Checker(const Table &table) : table(table) {}

  Result run();

private:
  Result collect();
  Result collect(const Action &action, Position position);
  Result checkCell(const Cell &cell, Position position) const;
  Result checkCompleteness() const;
  Result checkWork(int64_t stage, int64_t microbatch, const Work &work) const;
  Result checkCopies() const;

  const Table &table;
  std::map<std::pair<int64_t, int64_t>, Work> works;
  std::map<Action, Position> others;
  std::set<int64_t> stages, microbatches;
  bool hasBackwards = false;
};
} // namespace

static std::string describe(Position position) {
  return "rank " + std::to_string(position.rank) + ", step " +
         std::to_string(position.column);
}

static Problem makeProblem(std::string message, Position position) {
  return {std::move(message), {{position, ""}}};
}

/// Comes before `behind` in the same row.
static bool isBefore(Position position, Position behind) {
  return position.rank == behind.rank && position.column < behind.column;
}

Result Checker::checkCell(const Cell &cell, Position position) const {
  for (size_t i = 0; cell.size() > 1 && i < cell.size(); ++i) {
    if (!isCompute(cell[i].kind))
      return makeProblem("expected forwards and backwards in one cell, got " +
                             print(cell[i]),
                         position);
    for (size_t j = 0; j < i; ++j)
      if (cell[i].stage == cell[j].stage &&
          cell[i].microbatch == cell[j].microbatch)
        return makeProblem("expected different microbatches or stages in one "
                           "cell, got " +
                               print(cell[j]) + " and " + print(cell[i]),
                           position);
  }
  return std::nullopt;
}

Result Checker::collect(const Action &action, Position position) {
  const Position *first = nullptr;
  if (isCompute(action.kind)) {
    stages.insert(action.stage);
    microbatches.insert(action.microbatch);
    hasBackwards |= action.kind != Kind::F;
    auto [it, isNew] = works.try_emplace({action.stage, action.microbatch},
                                         Work{position.rank, {}});
    Work &work = it->second;
    if (work.rank != position.rank) {
      Position other = work.actions.begin()->second;
      return Problem{"expected stage " + std::to_string(action.stage) +
                         " on one rank, got " + print(action) + " on rank " +
                         std::to_string(position.rank) +
                         " and the same microbatch on rank " +
                         std::to_string(other.rank),
                     {{position, ""}, {other, ""}}};
    }
    auto [slot, isFirst] = work.actions.try_emplace(action.kind, position);
    first = isFirst ? nullptr : &slot->second;
  } else if (isTransfer(action.kind)) {
    auto [it, isFirst] = others.try_emplace(action, position);
    first = isFirst ? nullptr : &it->second;
  }
  if (first)
    return Problem{"expected every action once, got " + print(action) +
                       " again (first at " + describe(*first) + ")",
                   {{position, ""}, {*first, "first"}}};
  return std::nullopt;
}

Result Checker::collect() {
  for (size_t rank = 0; rank < table.size(); ++rank)
    for (size_t column = 0; column < table[rank].size(); ++column) {
      const Cell &cell = table[rank][column];
      Position position{rank, column};
      if (Result problem = checkCell(cell, position))
        return problem;
      for (const Action &action : cell)
        if (Result problem = collect(action, position))
          return problem;
    }
  return std::nullopt;
}

Result Checker::checkWork(int64_t stage, int64_t microbatch,
                          const Work &work) const {
  auto name = [&](Kind kind) { return print(Action{stage, kind, microbatch}); };
  const Position *forward = work.find(Kind::F), *whole = work.find(Kind::B),
                 *input = work.find(Kind::I), *weight = work.find(Kind::W);
  const Position *backward = whole ? whole : input;
  for (const auto &[kind, position] : work.actions)
    if (kind != Kind::F && (!forward || isBefore(position, *forward)))
      return makeProblem("expected " + name(Kind::F) + " before " + name(kind) +
                             (forward ? ", got it after" : ", got none"),
                         position);
  if (whole && (input || weight)) {
    Kind other = weight ? Kind::W : Kind::I;
    return Problem{"expected either B or I and W, got both " + name(Kind::B) +
                       " and " + name(other),
                   {{*work.find(other), ""}, {*whole, "B"}}};
  }
  if (weight && (!input || isBefore(*weight, *input)))
    return makeProblem("expected " + name(Kind::I) + " before " +
                           name(Kind::W) +
                           (input ? ", got it after" : ", got none"),
                       *weight);
  if (input && !weight)
    return makeProblem("expected " + name(Kind::W) + " after " + name(Kind::I) +
                           ", got none",
                       *input);
  if (hasBackwards && !backward)
    return makeProblem("expected a backward after " + name(Kind::F) + " (" +
                           name(Kind::B) + ", or " + name(Kind::I) + " and " +
                           name(Kind::W) + "), got none",
                       *forward);
  return std::nullopt;
}

/// The first number from 0 on that is not in the set, if a larger one is.
static std::optional<int64_t> findGap(const std::set<int64_t> &numbers) {
  int64_t expected = 0;
  for (int64_t number : numbers)
    if (number != expected++)
      return expected - 1;
  return std::nullopt;
}

Result Checker::checkCompleteness() const {
  // A pair of some stage shows where to point at.
  auto pointAt = [&](auto wanted) {
    for (const auto &[pair, work] : works)
      if (wanted(pair))
        return work.actions.begin()->second;
    return Position{0, 0};
  };
  if (works.empty())
    return Problem{"expected actions, got none", {}};
  if (std::optional<int64_t> gap = findGap(stages))
    return makeProblem("expected stage " + std::to_string(*gap) +
                           " on some rank, got none although there is stage " +
                           std::to_string(*stages.upper_bound(*gap)),
                       pointAt([&](auto pair) { return pair.first > *gap; }));
  if (std::optional<int64_t> gap = findGap(microbatches))
    return makeProblem("expected microbatch " + std::to_string(*gap) +
                           ", got none although there is microbatch " +
                           std::to_string(*microbatches.upper_bound(*gap)),
                       pointAt([&](auto pair) { return pair.second > *gap; }));
  for (int64_t stage : stages)
    for (int64_t microbatch : microbatches) {
      auto work = works.find({stage, microbatch});
      if (work == works.end())
        return makeProblem(
            "expected stage " + std::to_string(stage) + " to run microbatch " +
                std::to_string(microbatch) +
                " as other stages do, got no action of both",
            pointAt([&](auto pair) { return pair.second == microbatch; }));
      if (Result problem = checkWork(stage, microbatch, work->second))
        return problem;
    }
  return std::nullopt;
}

/// A stage may have a second copy if all stages have and the copies lie in
/// opposite order: everything else is a typing error rather than DualPipe.
Result Checker::checkCopies() const {
  std::map<int64_t, std::map<size_t, Position>> ranks;
  for (const auto &[pair, work] : works)
    ranks[pair.first].try_emplace(work.rank, work.actions.begin()->second);
  int64_t last = *stages.rbegin();
  for (const auto &[stage, places] : ranks) {
    if (places.size() == 1)
      continue;
    const auto &mirrored = ranks[last - stage];
    bool isMirror = places.size() == 2 && last % 2 == 1;
    for (const auto &[rank, position] : places)
      isMirror &= mirrored.count(rank) == 1;
    if (!isMirror)
      return Problem{"expected stage " + std::to_string(stage) +
                         " on one rank, got it on rank " +
                         std::to_string(places.begin()->first) + " and rank " +
                         std::to_string(std::next(places.begin())->first),
                     {{std::next(places.begin())->second, ""},
                      {places.begin()->second, ""}}};
  }
  return std::nullopt;
}

Result Checker::run() {
  if (Result problem = collect())
    return problem;
  if (Result problem = checkCompleteness())
    return problem;
  return checkCopies();
}

std::optional<Problem> piper::schedule::checkTable(const Table &table) {
  return Checker(table).run();
}
