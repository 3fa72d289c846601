// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/StateAccess.h"

#include "runtime/Error.h"

#include <algorithm>
#include <cstring>

namespace piper::runtime {
namespace {

/// `count` elements from `first` of the tensor, at `memory` of a rank.
struct Piece {
  uint64_t first;
  uint64_t count;
  char *memory;
};

void addPieces(const World &world, uint32_t rank, const plan::State &state,
               const plan::StateSegment &segment, std::vector<Piece> &pieces) {
  int64_t total = int64_t(plan::numElements(state.shape));
  uint64_t width = plan::byteWidth(state.dtype);
  uint32_t group = 0, position = 0;
  if (segment.communicator >= 0)
    plan::findPosition(world.plan().communicators[segment.communicator], rank,
                       group, position);
  char *memory = world.segment(rank).space(segment.space) + segment.byteOffset;
  if (segment.count == 0)
    return;
  for (uint64_t run = 0; run < segment.repeat; ++run) {
    int64_t begin = segment.elementOffset +
                    int64_t(position * segment.elementStride) +
                    int64_t(run * segment.repeatStride);
    int64_t end = begin + int64_t(segment.count);
    int64_t first = std::max<int64_t>(begin, 0), last = std::min(end, total);
    // What lies outside the tensor is padding.
    if (first < last)
      pieces.push_back(
          {uint64_t(first), uint64_t(last - first),
           memory + (run * segment.count + uint64_t(first - begin)) * width});
  }
}

std::vector<Piece> piecesOf(const World &world, uint32_t rank,
                            const plan::State &state) {
  std::vector<Piece> pieces;
  const plan::RankClass *rankClass = &world.classOf(rank);
  for (const plan::StateSegment &segment : state.segments)
    if (&world.plan().classes[segment.rankClass] == rankClass)
      addPieces(world, rank, state, segment, pieces);
  return pieces;
}

/// The parts of a tensor that are filled: disjoint intervals, in order.
class Coverage {
public:
  /// Calls `fill(first, count)` for what was not covered before.
  template <typename Fn> void add(uint64_t first, uint64_t count, Fn fill) {
    uint64_t end = first + count;
    auto it = intervals.upper_bound(first);
    if (it != intervals.begin() && std::prev(it)->second >= first)
      --it;
    uint64_t mergedFirst = first, mergedEnd = end, next = first;
    while (it != intervals.end() && it->first <= end) {
      if (next < it->first)
        fill(next, it->first - next);
      next = std::max(next, it->second);
      mergedFirst = std::min(mergedFirst, it->first);
      mergedEnd = std::max(mergedEnd, it->second);
      it = intervals.erase(it);
    }
    if (next < end)
      fill(next, end - next);
    intervals[mergedFirst] = mergedEnd;
  }
  bool isAll(uint64_t total) const {
    return total == 0 ||
           (intervals.size() == 1 && intervals.begin()->first == 0 &&
            intervals.begin()->second == total);
  }

private:
  std::map<uint64_t, uint64_t> intervals;
};

/// Fills what is not covered yet with what `rank` holds.
void readPieces(const World &world, uint32_t rank, const plan::State &state,
                Coverage &coverage, char *tensor) {
  uint64_t width = plan::byteWidth(state.dtype);
  for (const Piece &piece : piecesOf(world, rank, state))
    coverage.add(piece.first, piece.count, [&](uint64_t first, uint64_t count) {
      std::memcpy(tensor + first * width,
                  piece.memory + (first - piece.first) * width, count * width);
    });
}

} // namespace

uint32_t findState(const plan::Plan &plan, const std::string &name) {
  for (uint32_t i = 0; i < plan.states.size(); ++i)
    if (plan.states[i].name == name)
      return i;
  throw Error("the program has no state '" + name + "'");
}

uint64_t stateBytes(const plan::State &state) {
  return plan::numElements(state.shape) * plan::byteWidth(state.dtype);
}

void readState(const World &world, uint32_t number, char *tensor) {
  const plan::State &state = world.plan().states[number];
  uint64_t total = plan::numElements(state.shape);
  Coverage coverage;
  for (uint32_t rank = 0; rank < world.size() && !coverage.isAll(total); ++rank)
    readPieces(world, rank, state, coverage, tensor);
  if (!coverage.isAll(total))
    throw Error("no rank holds all of state '" + state.name + "'");
}

bool readCopy(const World &world, uint32_t rank, uint32_t number,
              char *tensor) {
  const plan::State &state = world.plan().states[number];
  Coverage coverage;
  readPieces(world, rank, state, coverage, tensor);
  return coverage.isAll(plan::numElements(state.shape));
}

void writeState(const World &world, uint32_t number, const char *tensor) {
  const plan::State &state = world.plan().states[number];
  uint64_t width = plan::byteWidth(state.dtype);
  for (uint32_t rank : world.localRanks())
    for (const Piece &piece : piecesOf(world, rank, state))
      std::memcpy(piece.memory, tensor + piece.first * width,
                  piece.count * width);
}

} // namespace piper::runtime
