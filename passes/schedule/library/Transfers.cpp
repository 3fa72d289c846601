// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Transfers.cpp - communication between ranks ------------------------===//
//
// Ranks take turns. Whose next cell has everything it needs does it, sends the
// results, and the receives go to the end of what the other ranks have done so
// far: behind each other, both sides of every message come in one order.
//
//===----------------------------------------------------------------------===//

#include "passes/schedule/library/Transfers.h"
#include <set>

using namespace piper::schedule;

namespace {
class TransferAdder {
public:
  explicit TransferAdder(const Table &table)
      : table(table), placement(findPlacement(table)), result(table.size()),
        done(table.size()), next(table.size()) {}

  Table run();

private:
  std::optional<size_t> findRank(int64_t stage, int64_t microbatch) const {
    auto found = placement.find({stage, microbatch});
    if (found == placement.end())
      return std::nullopt;
    return found->second;
  }
  bool isReady(const Action &action, size_t rank) const;
  bool isReady(const Cell &cell, size_t rank) const;
  void append(const Action &action, size_t rank) {
    result[rank].push_back({action});
    done[rank].insert(action);
  }
  void send(const Action &action, size_t rank);
  bool advance(size_t rank);

  const Table &table;
  Placement placement;
  Table result;
  std::vector<std::set<Action>> done; // by rank
  std::vector<size_t> next;           // column of each rank
};
} // namespace

/// Whether what comes from another stage is computed or received.
bool TransferAdder::isReady(const Action &action, size_t rank) const {
  auto [stage, kind, microbatch] = action;
  if (kind != Kind::F && !isBackward(kind))
    return true;
  bool isForward = kind == Kind::F;
  int64_t source = isForward ? stage - 1 : stage + 1;
  if (!findRank(source, microbatch))
    return true;
  auto has = [&](const Action &other) { return done[rank].count(other) != 0; };
  if (isForward)
    return has({stage, Kind::RecvF, microbatch}) ||
           has({source, Kind::F, microbatch});
  return has({stage, Kind::RecvB, microbatch}) ||
         has({source, Kind::B, microbatch}) ||
         has({source, Kind::I, microbatch});
}

bool TransferAdder::isReady(const Cell &cell, size_t rank) const {
  for (const Action &action : cell)
    if (!isReady(action, rank))
      return false;
  return true;
}

void TransferAdder::send(const Action &action, size_t rank) {
  auto [stage, kind, microbatch] = action;
  if (kind != Kind::F && !isBackward(kind))
    return;
  bool isForward = kind == Kind::F;
  int64_t target = isForward ? stage + 1 : stage - 1;
  std::optional<size_t> targetRank = findRank(target, microbatch);
  if (!targetRank || *targetRank == rank)
    return;
  append({stage, isForward ? Kind::SendF : Kind::SendB, microbatch}, rank);
  append({target, isForward ? Kind::RecvF : Kind::RecvB, microbatch},
         *targetRank);
}

/// Does the next cell of a rank, if it is ready.
bool TransferAdder::advance(size_t rank) {
  const Row &row = table[rank];
  while (next[rank] < row.size() && row[next[rank]].empty())
    ++next[rank];
  if (next[rank] == row.size() || !isReady(row[next[rank]], rank))
    return false;
  const Cell &cell = row[next[rank]++];
  result[rank].push_back(cell);
  done[rank].insert(cell.begin(), cell.end());
  for (const Action &action : cell)
    send(action, rank);
  return true;
}

Table TransferAdder::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t rank = 0; rank < table.size(); ++rank)
      moved |= advance(rank);
  }
  return std::move(result);
}

Table piper::schedule::addTransfers(const Table &table) {
  return hasTransfers(table) ? table : TransferAdder(table).run();
}
