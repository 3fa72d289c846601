// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Diagnosis.h"

#include <set>

namespace piper::runtime {
namespace {

/// The end of the chain of waits that begins at `rank`: the rank that waits for
/// no other, or, where ranks wait in a circle, one of these.
uint32_t findCulprit(const World &world, uint32_t rank) {
  std::set<uint32_t> seen;
  while (seen.insert(rank).second) {
    size_t numStreams = world.classOf(rank).streams.size();
    const StreamStatus *statuses = world.segment(rank).statuses();
    int32_t next = -1;
    bool works = false;
    for (size_t s = 0; s < numStreams; ++s) {
      Phase phase = statuses[s].phase.load(std::memory_order_relaxed);
      int32_t awaited = statuses[s].awaited.load(std::memory_order_relaxed);
      works |= phase == Phase::Running;
      if (phase == Phase::Waiting && awaited >= 0 && next < 0)
        next = awaited;
    }
    if (works || next < 0 || uint32_t(next) >= world.size())
      return rank;
    rank = uint32_t(next);
  }
  return rank;
}

/// A number that changes whenever the rank does something.
uint64_t progressOf(const World &world, uint32_t rank) {
  RankHeader &header = world.segment(rank).header();
  uint64_t sum = header.runsStarted.value.load() +
                 header.runsFinished.value.load() +
                 header.barriers.value.load() + header.parts.value.load();
  size_t numStreams = world.classOf(rank).streams.size();
  const StreamStatus *statuses = world.segment(rank).statuses();
  for (size_t s = 0; s < numStreams; ++s)
    sum = sum * 1000003u + statuses[s].action.load(std::memory_order_relaxed);
  return sum;
}

} // namespace

std::string actionName(const World &world, uint32_t rank, uint32_t stream,
                       uint32_t index) {
  uint32_t number = world.segment(rank).header().entry.load();
  const plan::RankClass &rankClass = world.classOf(rank);
  if (number >= world.entryNames().size())
    return "an action";
  auto entry = rankClass.entries.find(world.entryNames()[number]);
  if (entry == rankClass.entries.end() || stream >= entry->second.size())
    return "an action";
  if (index >= entry->second[stream].size())
    return "the end of entry '" + entry->first + "'";
  const plan::Action &action = entry->second[stream][index];
  std::string text = plan::name(action.opcode);
  return action.label.empty() ? text + " (action " + std::to_string(index) + ")"
                              : text + " '" + action.label + "'";
}

std::string describe(const World &world, uint32_t rank) {
  const plan::RankClass &rankClass = world.classOf(rank);
  Segment &segment = world.segment(rank);
  std::string text;
  for (uint32_t s = 0; s < rankClass.streams.size(); ++s) {
    StreamStatus &status = segment.statuses()[s];
    Phase phase = status.phase.load(std::memory_order_relaxed);
    if (phase == Phase::Idle)
      continue;
    int32_t awaited = status.awaited.load(std::memory_order_relaxed);
    text += text.empty() ? " was " : " and ";
    if (phase == Phase::Running)
      text += "in ";
    else if (awaited >= 0)
      text += "waiting for rank " + std::to_string(awaited) + " at ";
    else
      text += "waiting at ";
    text += actionName(world, rank, s,
                       status.action.load(std::memory_order_relaxed)) +
            " (stream " + rankClass.streams[s].name + ")";
  }
  if (text.empty())
    text = " was between runs (" +
           std::to_string(segment.header().runsFinished.value.load()) +
           " done)";
  return "rank " + std::to_string(rank) + text;
}

void Patience::check(int32_t awaited) {
  if (awaited < 0)
    return;
  uint32_t rank = findCulprit(world, uint32_t(awaited));
  uint64_t now = nowNs(), seen = progressOf(world, rank);
  if (rank != culprit || seen != progress || since == 0) {
    culprit = rank;
    progress = seen;
    since = now;
    return;
  }
  double limit = world.options().timeoutSeconds;
  if (double(now - since) * 1e-9 < limit)
    return;
  std::string seconds = std::to_string(limit);
  seconds.erase(seconds.find('.') + 2);
  world.abort(rank, FailureKind::Stalled,
              "rank " + std::to_string(rank) + " made no progress for " +
                  seconds + " s: " + describe(world, rank));
}

} // namespace piper::runtime
