// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- EightSteps.cpp - the steps of DualPipe and DualPipeV ---------------===//

#include "passes/schedule/library/EightSteps.h"
#include <deque>

using namespace piper::schedule;

namespace {
class Rank {
public:
  Rank(int64_t depth, int64_t position, Lane lane0, Lane lane1)
      : depth(depth), position(position), lanes{lane0, lane1} {}

  Row build(int64_t count);

private:
  void forward(int lane) { add({nextForward(lane)}); }
  void backward(int lane) { add({nextBackward(lane, Kind::B)}); }
  /// Its W follows when `weight` is called.
  void inputGradient(int lane);
  void weight();
  void forwardAndBackward(int forwardLane, int backwardLane);

  Action nextForward(int lane);
  Action nextBackward(int lane, Kind kind);
  void add(Cell cell);

  int64_t depth, position;
  Lane lanes[2];
  int64_t forwards[2] = {}, backwards[2] = {};
  std::deque<Action> weights;
  Row row;
};
} // namespace

Action Rank::nextForward(int lane) {
  return {lanes[lane].stage, Kind::F,
          lanes[lane].firstMicrobatch + forwards[lane]++};
}

Action Rank::nextBackward(int lane, Kind kind) {
  return {lanes[lane].stage, kind,
          lanes[lane].firstMicrobatch + backwards[lane]++};
}

/// Leaves out what belongs to microbatches that are not there.
void Rank::add(Cell cell) {
  Cell kept;
  for (const Action &action : cell)
    for (const Lane &lane : lanes)
      if (action.stage == lane.stage &&
          action.microbatch >= lane.firstMicrobatch &&
          action.microbatch - lane.firstMicrobatch < lane.numMicrobatches)
        kept.push_back(action);
  if (!kept.empty())
    row.push_back(kept);
}

void Rank::inputGradient(int lane) {
  Action action = nextBackward(lane, Kind::I);
  add({action});
  action.kind = Kind::W;
  weights.push_back(action);
}

void Rank::weight() {
  if (weights.empty())
    return;
  add({weights.front()});
  weights.pop_front();
}

void Rank::forwardAndBackward(int forwardLane, int backwardLane) {
  add({nextForward(forwardLane), nextBackward(backwardLane, Kind::B)});
}

Row Rank::build(int64_t count) {
  int64_t behind = depth - position - 1, upTo = position + 1;
  // 1: lane 0 fills.
  for (int64_t i = 0; i < 2 * behind; ++i)
    forward(0);
  // 2: so does lane 1, which has reached this rank.
  for (int64_t i = 0; i < upTo; ++i) {
    forward(0);
    forward(1);
  }
  // 3: the first gradients go back without waiting for those of the weights.
  for (int64_t i = 0; i < behind; ++i) {
    inputGradient(1);
    weight();
    forward(1);
  }
  // 4: each forward beside a backward of the other lane.
  for (int64_t i = 0; i < count - 2 * depth + upTo; ++i) {
    // Where the lanes turn, the first pair waits less one after the other.
    if (i == 0 && behind == 0) {
      forward(0);
      backward(1);
    } else {
      forwardAndBackward(0, 1);
    }
    forwardAndBackward(1, 0);
  }
  // 5: lane 0 has no forwards left.
  for (int64_t i = 0; i < behind; ++i) {
    backward(1);
    forwardAndBackward(1, 0);
  }
  // 6: from the middle on the gradients of the weights wait.
  for (int64_t i = 0; i < 2 * upTo; ++i) {
    int lane = i % 2 == 0 ? 1 : 0;
    if (i >= upTo)
      inputGradient(lane);
    else
      backward(lane);
  }
  // 7 and 8: they fill the time between the last gradients, and the end.
  for (int64_t i = 0; i < behind; ++i) {
    weight();
    inputGradient(0);
  }
  for (int64_t i = 0; i < upTo; ++i)
    weight();
  return std::move(row);
}

Row piper::schedule::buildEightSteps(int64_t depth, int64_t position,
                                     int64_t count, Lane lane0, Lane lane1) {
  return Rank(depth, position, lane0, lane1).build(count);
}
