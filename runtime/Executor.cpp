// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Executor.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <unistd.h>

namespace piper::runtime {
namespace {

/// After a failure, the time that streams get to leave the kernels they are in.
constexpr uint64_t kGiveUpNs = 1000000000;
constexpr unsigned kTickMs = 50;

std::vector<int> allowedCores() {
  std::vector<int> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        cores.push_back(core);
  return cores;
}

/// Divides the cores among the ranks of this process as their streams' budgets
/// ask; no rank gets any if they do not suffice for all.
std::vector<std::vector<int>> divideCores(const World &world,
                                          const std::vector<uint32_t> &ranks) {
  std::vector<int> cores = allowedCores();
  std::vector<std::vector<int>> shares(ranks.size());
  size_t next = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    uint64_t budget = 0;
    for (const plan::Stream &stream : world.classOf(ranks[i]).streams)
      budget += stream.cores;
    if (budget > cores.size() - next)
      return std::vector<std::vector<int>>(ranks.size());
    shares[i].assign(cores.begin() + next, cores.begin() + next + budget);
    next += budget;
  }
  return shares;
}

} // namespace

Executor::Executor(std::shared_ptr<const plan::Plan> plan, uint64_t planSum,
                   std::shared_ptr<Device> device,
                   std::vector<uint32_t> localRanks, WorldOptions options)
    : program(std::move(plan)), device(std::move(device)), owner(getpid()) {
  shared =
      std::make_unique<World>(program, planSum, localRanks, std::move(options));
  finished = std::make_unique<SharedWord>();
  if (shared->localRanks().size() == program->worldSize)
    createRanks();
}

void Executor::connect(const std::vector<std::string> &handles) {
  shared->connect(handles);
  if (locals.empty())
    createRanks();
}

void Executor::createRanks() {
  std::vector<std::vector<int>> cores =
      divideCores(*shared, shared->localRanks());
  for (size_t i = 0; i < shared->localRanks().size(); ++i)
    locals.push_back(std::make_unique<LocalRank>(
        *shared, *device, shared->localRanks()[i], cores[i]));
}

Executor::~Executor() { close(); }

void Executor::close() {
  if (closed)
    return;
  closed = true;
  if (getpid() != owner || abandoned) {
    // Threads that do not exist here, or that cannot be stopped.
    for (std::unique_ptr<LocalRank> &rank : locals)
      rank.release();
    finished.release();
    if (getpid() == owner) {
      shared->abandon();
      // Code that may still run must stay.
      new std::shared_ptr<Device>(device);
      new std::shared_ptr<const plan::Plan>(program);
      shared.release();
      return;
    }
  }
  locals.clear();
  shared->close();
}

std::vector<HostInput>
Executor::checkInputs(const std::string &entry,
                      const std::vector<HostTensor> &inputs) {
  if (device->holdsData() && inputs.size() != program->inputs.size())
    throw Error("expected " + std::to_string(program->inputs.size()) +
                " inputs, got " + std::to_string(inputs.size()));
  std::vector<HostInput> result(program->inputs.size());
  if (!device->holdsData())
    return result;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const HostTensor &tensor = inputs[i];
    for (const std::unique_ptr<LocalRank> &rank : locals) {
      auto [first, last] = rank->inputRange(entry, i);
      if (first == last)
        continue;
      if (!tensor.data || first < tensor.firstByte ||
          last > tensor.firstByte + tensor.bytes)
        throw Error("input '" + program->inputs[i].name + "': rank " +
                    std::to_string(rank->rank()) + " reads bytes " +
                    std::to_string(first) + " to " + std::to_string(last) +
                    " of the global tensor, got bytes " +
                    std::to_string(tensor.firstByte) + " to " +
                    std::to_string(tensor.firstByte + tensor.bytes));
    }
    // Integer arithmetic: the base may lie outside the host's tensor.
    result[i].base = reinterpret_cast<char *>(
        reinterpret_cast<uintptr_t>(tensor.data) - tensor.firstByte);
  }
  return result;
}

void Executor::writeScalars(const std::vector<ScalarValue> &scalars) {
  for (const ScalarValue &value : scalars) {
    if (value.scalar >= program->scalars.size())
      throw Error("scalar " + std::to_string(value.scalar) + " does not exist");
    const plan::Scalar &scalar = program->scalars[value.scalar];
    float single = float(value.real);
    int32_t small = int32_t(value.integer);
    const void *bytes = &value.integer;
    if (scalar.dtype == plan::DType::F32)
      bytes = &single;
    else if (scalar.dtype == plan::DType::F64)
      bytes = &value.real;
    else if (scalar.dtype == plan::DType::I32)
      bytes = &small;
    for (uint32_t rank : shared->localRanks())
      std::memcpy(shared->segment(rank).space(plan::Space::Scalar) +
                      scalar.offset,
                  bytes, plan::byteWidth(scalar.dtype));
  }
}

void Executor::run(const std::string &entry, uint64_t flags,
                   const std::vector<HostTensor> &inputs,
                   const std::vector<ScalarValue> &scalars, bool trace,
                   const Interrupt &interrupted) {
  if (closed)
    throw Error("the program is closed");
  if (getpid() != owner)
    throw Error("the program belongs to the process that forked this one");
  if (locals.empty())
    throw Error("the ranks have not met yet");
  std::vector<HostInput> bases = checkInputs(entry, inputs);
  uint32_t number = shared->beginRun(entry);
  writeScalars(scalars);
  awaited += uint32_t(locals.size());
  begunAt = nowNs();
  for (const std::unique_ptr<LocalRank> &rank : locals)
    rank->start(entry, number, flags, bases, trace, begunAt, *finished);
  awaitRanks(interrupted);
  shared->throwIfAborted();
}

void Executor::awaitRanks(const Interrupt &interrupted) {
  uint64_t failedAt = 0;
  while (!reached(*finished, awaited)) {
    sleepOn(*finished, awaited, kTickMs);
    if (reached(*finished, awaited))
      break;
    if (interrupted && interrupted())
      shared->abort(locals[0]->rank(), FailureKind::Interrupted,
                    "rank " + std::to_string(locals[0]->rank()) +
                        " was interrupted");
    // They may wait for each other without end.
    if (shared->offersDiffer())
      shared->stopDiffering();
    const AbortRecord *failure = shared->failure();
    if (!failure)
      continue;
    if (failedAt == 0)
      failedAt = nowNs();
    // The process ends soon: do not wait for a long kernel. If the failure is
    // this process's own, it may go on, and the kernel must end first.
    if (shared->endsProcess(*failure) &&
        size_t(shared->size()) > locals.size() &&
        nowNs() - failedAt > kGiveUpNs) {
      abandoned = true;
      shared->throwIfAborted();
    }
  }
}

uint64_t Executor::durationNs() const {
  uint64_t latest = 0;
  for (const std::unique_ptr<LocalRank> &rank : locals)
    latest = std::max(latest, rank->finishedAt());
  return latest > begunAt ? latest - begunAt : 0;
}

const char *Executor::output(const std::string &name) const {
  int64_t best = -1;
  const plan::Output *found = nullptr;
  for (const plan::Output &output : program->outputs) {
    if (output.name != name)
      continue;
    for (uint32_t rank : program->classes[output.rankClass].ranks)
      if (shared->isLocal(rank) && (best < 0 || rank < best)) {
        best = rank;
        found = &output;
      }
  }
  if (!found)
    return nullptr;
  uint64_t offset = found->address.offset;
  uint32_t group = 0, position = 0;
  if (found->address.communicator >= 0 &&
      plan::findPosition(program->communicators[found->address.communicator],
                         uint32_t(best), group, position))
    offset += position * found->address.stride;
  return shared->segment(uint32_t(best)).space(found->address.space) + offset;
}

} // namespace piper::runtime
