// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the executor itself costs on the CPU device: microseconds per action of
// plans whose kernels do nothing, and per step of a plan of 10,000 of them.
#include "Measure.h"
#include "runtime/Executor.h"
#include "runtime/cpu/CpuDevice.h"

#include <cstdio>
#include <cstdlib>

using namespace piper;
using namespace piper::plan;
using namespace piper::runtime;

namespace {

constexpr uint32_t kActions = 10000;

void nothing(void *const *) {}

class EmptyKernels : public CpuDevice {
public:
  const void *findKernel(const std::string &,
                         const std::string &) const override {
    return reinterpret_cast<const void *>(&nothing);
  }
};

Address arena(uint64_t offset) { return {Space::Arena, 0, offset}; }
Action empty() { return launch(0, {arena(0), arena(64), arena(128)}); }

Plan planOf(StreamActions actions, uint32_t numEvents) {
  Plan plan;
  plan.worldSize = 1;
  plan.flags = {"never"};
  plan.kernels = {{"nothing", 0, {64, 64, 64}}};
  RankClass rankClass;
  rankClass.ranks = {0};
  rankClass.arenaBytes = 4096;
  rankClass.numEvents = numEvents;
  for (size_t s = 0; s < actions.size(); ++s)
    rankClass.streams.push_back({"stream" + std::to_string(s), 0, 0});
  rankClass.entries["step"] = std::move(actions);
  plan.classes = {rankClass};
  return plan;
}

void report(const char *name, StreamActions actions, uint32_t numEvents = 0,
            bool trace = false) {
  size_t count = 0;
  for (const std::vector<Action> &stream : actions)
    count += stream.size();
  Plan plan = planOf(std::move(actions), numEvents);
  std::string error;
  if (!validate(plan, error)) {
    std::fprintf(stderr, "%s: %s\n", name, error.c_str());
    std::exit(1);
  }
  Executor executor(std::make_shared<Plan>(std::move(plan)), 1,
                    std::make_shared<EmptyKernels>(), {0});
  Samples step =
      measure(3, 31, [&] { executor.run("step", 0, {}, {}, trace); });
  std::printf("%-52s %8zu %12.1f %12.4f %12.4f\n", name, count, step.median(),
              step.median() / double(count), step.least() / double(count));
}

std::vector<Action>
repeat(uint32_t times,
       const std::function<void(std::vector<Action> &, uint32_t)> &append) {
  std::vector<Action> actions;
  for (uint32_t i = 0; i < times; ++i)
    append(actions, i);
  return actions;
}

} // namespace

int main() {
  using List = std::vector<Action>;
  std::printf("%-52s %8s %12s %12s %12s\n", "plan", "actions", "us a step",
              "us an action", "lowest");
  report("one launch", {{empty()}});
  report("launches",
         {repeat(kActions, [](List &a, uint32_t) { a.push_back(empty()); })});
  report("launches, traced",
         {repeat(kActions, [](List &a, uint32_t) { a.push_back(empty()); })}, 0,
         true);
  report("launches that a flag skips", {repeat(kActions, [](List &a, uint32_t) {
           a.push_back(empty());
           a.back().predicate = whenSet(0);
         })});
  report(
      "records",
      {repeat(kActions, [](List &a, uint32_t i) { a.push_back(record(i)); })},
      kActions);
  report("records and waits, one stream",
         {repeat(kActions / 2,
                 [](List &a, uint32_t i) {
                   a.push_back(record(i));
                   a.push_back(wait(i));
                 })},
         kActions);
  report("fill_zero of 64 bytes", {repeat(kActions, [](List &a, uint32_t) {
           a.push_back(fillZero(arena(0), 64));
         })});
  report("launch, fill_zero, copy, record, wait, one stream",
         {repeat(kActions / 5,
                 [](List &a, uint32_t i) {
                   a.insert(a.end(), {empty(), fillZero(arena(0), 64),
                                      copy(arena(64), arena(0), 64), record(i),
                                      wait(i)});
                 })},
         kActions);
  // The second stream follows the first; their threads wait rarely.
  report("launch, record | wait, launch",
         {repeat(kActions / 4,
                 [](List &a, uint32_t i) {
                   a.insert(a.end(), {empty(), record(i)});
                 }),
          repeat(kActions / 4,
                 [](List &a, uint32_t i) {
                   a.insert(a.end(), {wait(i), empty()});
                 })},
         kActions);
  // Every wait is a hand-over between two threads.
  report("launch, record, wait | wait, launch, record",
         {repeat(kActions / 6,
                 [](List &a, uint32_t i) {
                   a.insert(a.end(), {empty(), record(2 * i), wait(2 * i + 1)});
                 }),
          repeat(kActions / 6,
                 [](List &a, uint32_t i) {
                   a.insert(a.end(), {wait(2 * i), empty(), record(2 * i + 1)});
                 })},
         kActions);
}
