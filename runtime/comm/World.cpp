// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/World.h"

#include "runtime/Error.h"
#include "runtime/comm/Diagnosis.h"
#include "runtime/comm/Termination.h"
#include "runtime/comm/Watcher.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <unistd.h>

namespace piper::runtime {

World::World(std::shared_ptr<const plan::Plan> plan, uint64_t planSum,
             std::vector<uint32_t> localRanks, WorldOptions options)
    : program(std::move(plan)), planSum(planSum),
      ownRanks(std::move(localRanks)), settings(std::move(options)),
      segments(program->worldSize), owner(getpid()) {
  std::set<std::string> names;
  for (const plan::RankClass &rankClass : program->classes)
    for (const auto &entry : rankClass.entries)
      names.insert(entry.first);
  entries.assign(names.begin(), names.end());
  classNumbers.resize(program->worldSize);
  for (uint32_t c = 0; c < program->classes.size(); ++c)
    for (uint32_t rank : program->classes[c].ranks)
      classNumbers[rank] = c;
  if (ownRanks.empty())
    throw Error("expected at least one rank in this process");
  for (uint32_t rank : ownRanks) {
    if (rank >= program->worldSize)
      throw Error("rank " + std::to_string(rank) + " is not below " +
                  std::to_string(program->worldSize));
    if (segments[rank])
      throw Error("rank " + std::to_string(rank) + " appears twice");
    segments[rank] = std::make_unique<Segment>(
        Segment::create(rank, SegmentLayout::of(*program, rank)));
    segments[rank]->header().planSum.store(planSum);
  }
  // With a core per rank a short wait is cheaper awake; otherwise the core is
  // better given to whom the wait is for.
  uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  spinTime = program->worldSize <= cores ? 30000 : 2000;
  if (ownRanks.size() == program->worldSize)
    for (uint32_t rank : ownRanks)
      segments[rank]->header().life.store(Life::Ready);
}

World::~World() { close(); }

std::vector<std::string> World::handles() const {
  std::vector<std::string> result;
  for (uint32_t rank : ownRanks)
    result.push_back(segment(rank).handle().encode());
  return result;
}

void World::connect(const std::vector<std::string> &handles) {
  std::vector<SegmentHandle> remote;
  for (const std::string &text : handles) {
    SegmentHandle handle = SegmentHandle::decode(text);
    if (handle.rank >= size())
      throw Error("rank " + std::to_string(handle.rank) + " is not below " +
                  std::to_string(size()));
    if (isLocal(handle.rank))
      continue;
    if (segments[handle.rank])
      throw Error("two processes run as rank " + std::to_string(handle.rank));
    segments[handle.rank] = std::make_unique<Segment>(
        Segment::open(handle, SegmentLayout::of(*program, handle.rank)));
    if (segment(handle.rank).header().planSum.load() != planSum)
      throw Error("rank " + std::to_string(handle.rank) + " (process " +
                  std::to_string(handle.pid) +
                  ") runs another plan than rank " +
                  std::to_string(ownRanks[0]));
    remote.push_back(handle);
  }
  for (uint32_t rank = 0; rank < size(); ++rank)
    if (!segments[rank])
      throw Error("rank " + std::to_string(rank) + " did not come");
  for (uint32_t rank : ownRanks)
    segment(rank).header().life.store(Life::Ready);
  if (!remote.empty())
    watcher = std::make_unique<Watcher>(*this, remote);
}

void World::close() {
  if (closed)
    return;
  closed = true;
  // A forked child inherits the object, not the job.
  if (getpid() != owner) {
    if (watcher)
      watcher.release();
    for (std::unique_ptr<Segment> &segment : segments)
      if (segment)
        segment->abandon();
    return;
  }
  watcher.reset();
  for (uint32_t rank : ownRanks)
    if (segments[rank] && segments[rank]->base())
      segment(rank).header().life.store(Life::Closed);
  segments.clear();
}

void World::abandon() {
  for (std::unique_ptr<Segment> &segment : segments)
    segment.release();
  segments.clear();
  // The watcher may still read the segments; it ends with the process.
  watcher.release();
  closed = true;
}

bool World::isLocal(uint32_t rank) const {
  return std::find(ownRanks.begin(), ownRanks.end(), rank) != ownRanks.end();
}

const plan::RankClass &World::classOf(uint32_t rank) const {
  return program->classes[classNumbers[rank]];
}

uint32_t World::beginRun(const std::string &entry) {
  auto it = std::lower_bound(entries.begin(), entries.end(), entry);
  if (it == entries.end() || *it != entry)
    throw Error("the program has no entry '" + entry + "'");
  throwIfAborted();
  if (watcher)
    renewTerminationGuard();
  uint32_t run = runNumber.load() + 1;
  for (uint32_t rank = 0; rank < size(); ++rank)
    if (leftBefore(rank, run)) {
      abortLeft(rank, run);
      throwIfAborted();
    }
  runNumber.store(run, std::memory_order_release);
  for (uint32_t rank : ownRanks) {
    RankHeader &header = segment(rank).header();
    header.entry.store(uint32_t(it - entries.begin()));
    signal(header.runsStarted, run);
  }
  return run;
}

void World::finishRun(uint32_t rank) {
  signal(segment(rank).header().runsFinished, currentRun());
}

bool World::isRunning() const {
  if (differs())
    return false;
  for (uint32_t rank : ownRanks)
    if (!reached(segment(rank).header().runsFinished, currentRun()))
      return true;
  return false;
}

bool World::leftBefore(uint32_t rank, uint32_t run) const {
  RankHeader &header = segment(rank).header();
  return header.life.load() == Life::Closed &&
         !reached(header.runsFinished, run);
}

void World::abortLeft(uint32_t rank, uint32_t run) {
  uint32_t done = segment(rank).header().runsFinished.value.load();
  abort(rank, FailureKind::Left,
        "rank " + std::to_string(rank) + " ended after " +
            std::to_string(done) + " runs, before run " + std::to_string(run));
}

void World::awaitHost(uint32_t rank, SharedWord &word, uint32_t target,
                      const Interrupt &interrupted,
                      const std::function<void()> &lookFor) {
  if (reached(word, target) || spinOn(word, target, spinTime))
    return;
  Patience patience(*this);
  while (!reached(word, target)) {
    lookFor();
    throwIfLost();
    if (interrupted && interrupted()) {
      abort(ownRanks[0], FailureKind::Interrupted, "interrupted");
      throw Interrupted("interrupted");
    }
    sleepOn(word, target, 50);
    patience.check(int32_t(rank));
  }
}

void World::barrier(const Interrupt &interrupted) {
  throwIfAborted();
  ++barrierNumber;
  for (uint32_t rank : ownRanks)
    signal(segment(rank).header().barriers, barrierNumber);
  const std::string together =
      " while rank " + std::to_string(ownRanks[0]) +
      " reads or writes state, which all ranks do together";
  for (uint32_t rank = 0; rank < size(); ++rank) {
    RankHeader &header = segment(rank).header();
    auto lookFor = [&] {
      uint32_t run = currentRun();
      // In this order: what it did before it left or began counts.
      bool left = header.life.load() == Life::Closed;
      bool began = !reached(run, header.runsStarted.value.load());
      if (reached(header.barriers, barrierNumber))
        return;
      if (began)
        abort(rank, FailureKind::Failed,
              "rank " + std::to_string(rank) + " begins run " +
                  std::to_string(run + 1) + together);
      else if (left)
        abort(rank, FailureKind::Left,
              "rank " + std::to_string(rank) + " ended" + together);
    };
    awaitHost(rank, header.barriers, barrierNumber, interrupted, lookFor);
  }
}

void World::abort(uint32_t rank, FailureKind kind, const std::string &message) {
  // What fails where ranks run different things does so for that reason.
  if (kind == FailureKind::Failed &&
      (differs() || (isRunning() && offersDiffer()))) {
    stopDiffering();
    return;
  }
  for (const std::unique_ptr<Segment> &segment : segments) {
    if (!segment)
      continue;
    AbortRecord &record = segment->header().abort;
    uint32_t none = AbortRecord::None;
    if (!record.state.compare_exchange_strong(none, AbortRecord::Writing))
      continue;
    record.rank = rank;
    record.kind = kind;
    std::strncpy(record.message, message.c_str(), sizeof(record.message) - 1);
    record.state.store(AbortRecord::Ready, std::memory_order_release);
  }
}

const AbortRecord *World::failure() const {
  const AbortRecord &record = segment(ownRanks[0]).header().abort;
  // Whoever writes it may die meanwhile; then what is there must do.
  for (int i = 0; i < 100; ++i) {
    uint32_t state = record.state.load(std::memory_order_acquire);
    if (state == AbortRecord::None)
      return nullptr;
    if (state == AbortRecord::Ready)
      break;
    usleep(1000);
  }
  return &record;
}

bool World::endsProcess(const AbortRecord &record) const {
  return !isLocal(record.rank) || record.kind == FailureKind::Stalled;
}

void World::throwIfAborted() {
  throwIfLost();
  if (differs())
    throw Error("the ranks were not alike");
}

void World::throwIfLost() {
  const AbortRecord *record = failure();
  if (!record)
    return;
  std::string message = record->message;
  if (record->kind == FailureKind::Interrupted && isLocal(record->rank))
    throw Interrupted(message);
  if (!watcher || !endsProcess(*record))
    throw Error(message);
  watcher->awaitReport();
  throw RankLost(message);
}

} // namespace piper::runtime
