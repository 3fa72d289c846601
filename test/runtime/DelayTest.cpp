// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans on the delay device. By the timelines every time is exact; on the clock
// a run never takes less.
#include "Check.h"
#include "runtime/Executor.h"
#include "runtime/delay/DelayDevice.h"
#include "runtime/simulate/Simulator.h"

#include <cmath>
#include <functional>

using namespace piper;
using namespace piper::plan;
using namespace piper::runtime;

namespace {

constexpr double kNever = INFINITY;
constexpr uint64_t kMs = 1000000;
// Sanitizers leave less of the address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kArena = uint64_t(1) << 30;
#else
constexpr uint64_t kArena = uint64_t(1) << 40;
#endif

Address arena(uint64_t offset) { return {Space::Arena, 0, offset}; }

/// Ranks of two streams and more memory than any machine has.
Plan planOf(std::vector<StreamActions> ranks) {
  Plan plan;
  plan.worldSize = uint32_t(ranks.size());
  plan.flags = {"flag"};
  plan.kernels = {{"k", 0, {64}}, {"other", 0, {}}};
  std::vector<uint32_t> all;
  for (uint32_t r = 0; r < plan.worldSize; ++r) {
    RankClass rankClass;
    rankClass.ranks = {r};
    rankClass.arenaBytes = kArena;
    rankClass.numEvents = 8;
    rankClass.streams = {{"compute", 1 << 20, 0}, {"comm", 0, 0}};
    ranks[r].resize(2);
    rankClass.entries["step"] = std::move(ranks[r]);
    plan.classes.push_back(rankClass);
    all.push_back(r);
  }
  plan.communicators = {{"all", {all}}};
  if (all.size() > 1)
    plan.communicators.push_back({"edge", {{0, 1}}});
  return plan;
}

class Fixture {
public:
  Fixture(Plan plan, const DelayCosts &costs, WorldOptions options = {}) {
    std::string error;
    if (!validate(plan, error)) {
      std::fprintf(stderr, "%s\n", error.c_str());
      CHECK(false);
    }
    auto shared = std::make_shared<Plan>(std::move(plan));
    auto device = std::make_shared<DelayDevice>(costs, *shared);
    std::vector<uint32_t> ranks;
    for (uint32_t r = 0; r < shared->worldSize; ++r)
      ranks.push_back(r);
    executor = std::make_unique<Executor>(shared, 1, device, ranks, options);
  }
  /// Milliseconds by the timelines.
  double run(uint64_t flags = 0) {
    uint64_t begin = nowNs();
    executor->run("step", flags, {}, {}, true);
    CHECK(nowNs() - begin >= executor->durationNs());
    return double(executor->durationNs()) / kMs;
  }
  TraceEvent event(uint32_t rank, size_t stream, size_t action) {
    return executor->ranks()[rank]->trace(stream)[action];
  }
  /// When an action ended, in milliseconds since `rank`'s stream 0 began.
  double endOf(uint32_t rank, size_t stream, size_t action) {
    return double(int64_t(event(rank, stream, action).end -
                          event(rank, 0, 0).begin)) /
           kMs;
  }
  std::unique_ptr<Executor> executor;
};

void near(double got, double expected) {
  if (std::abs(got - expected) < 1e-4)
    return;
  std::fprintf(stderr, "expected %f ms, got %f\n", expected, got);
  CHECK(false);
}

std::string messageOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &error) {
    return error.what();
  }
  CHECK(false);
  return "";
}

DelayCosts costs(std::vector<DelayCosts::KernelCost> kernels,
                 std::vector<DelayCosts::LinkCost> links = {}) {
  return {std::move(kernels), std::move(links), kNever, 0};
}

/// The first pattern that matches the label or the kernel's name counts.
void patterns() {
  Plan plan = planOf(
      {{{launch(0, {arena(0)}, "F MB=1"), launch(0, {arena(0)}, "F MB=2"),
         launch(0, {arena(0)}), launch(1, {}, "rest")}}});
  Fixture fixture(plan, costs({{"F *=1", 0.002}, {"k", 0.001}}));
  for (int i = 0; i < 3; ++i)
    near(fixture.run(), 2 + 1 + 1);
  near(fixture.endOf(0, 0, 0), 2);
  near(fixture.endOf(0, 0, 3), 4);
  CHECK_CONTAINS(messageOf([&] { Fixture(plan, costs({{"F *=3", 1}})); }),
                 "pattern 'F *=3' matches none of the plan's launches: these "
                 "are 'F MB=1', 'F MB=2', 'k', 'rest'");
  CHECK_CONTAINS(messageOf([&] { Fixture(plan, costs({{"k", -1}})); }),
                 "kernels 'k': expected a number of seconds, got -1");
  CHECK_CONTAINS(
      messageOf([&] { Fixture(plan, costs({}, {{"edge", 0, 1}})); }),
      "pattern 'edge' matches none of the plan's communicators: these are "
      "'all'");
  CHECK_CONTAINS(messageOf([&] { Fixture(plan, costs({}, {{"*", 0, 0}})); }),
                 "links '*': expected bytes per second above 0, got 0");
}

/// Streams run beside each other; a wait takes until the event is recorded.
void streamsOverlap() {
  Plan plan =
      planOf({{{launch(0, {arena(0)}, "a"), record(0), wait(1),
                launch(0, {arena(0)}, "a")},
               {launch(1, {}, "b"), wait(0), launch(1, {}, "b"), record(1)}}});
  Fixture fixture(plan, costs({{"a", 0.010}, {"b", 0.004}}));
  // a ends at 10, the second b at 14, the second a at 24.
  near(fixture.run(), 24);
  near(fixture.endOf(0, 1, 0), 4);
  near(double(fixture.event(0, 1, 1).waited) / kMs, 6);
  near(fixture.endOf(0, 1, 2), 14);
}

/// A kernel on one of four cores takes four times as long, on a stream without
/// a budget as long as stated; the simulator says the same.
void budgets() {
  Plan plan = planOf({{{launch(0, {arena(0)}, "a"), launch(0, {arena(0)}, "a")},
                       {launch(1, {}, "b")}}});
  plan.classes[0].streams[1].cores = 1;
  DelayCosts stated = costs({{"a", 0.005}, {"b", 0.003}});
  near(Fixture(plan, stated).run(), 10);
  stated.cores = 4;
  near(Fixture(plan, stated).run(), 12);
  near(double(simulate(plan, DelayDevice(stated, plan), "step", 0).duration) /
           kMs,
       12);
  plan.classes[0].streams[0].cores = 4;
  CHECK_CONTAINS(messageOf([&] { Fixture(plan, stated); }),
                 "rank 0: expected budgets of at most 4 cores, got streams "
                 "with 5 together");
}

/// A send takes no time of its stream, messages pass a link one by one, and a
/// latency later they are there; a release waits for that.
void messages() {
  StreamActions sender = {{send(1, arena(0), 1000), send(1, arena(0), 3000),
                           launch(1, {}), release(1, 0), release(1, 1)}};
  StreamActions receiver = {{launch(1, {}), recv(1, arena(0), 1000),
                             recv(1, arena(0), 3000), launch(1, {})}};
  Fixture fixture(planOf({sender, receiver}),
                  costs({{"other", 0.001}}, {{"edge", 0.005, 1e6}}));
  for (int i = 0; i < 2; ++i) {
    near(fixture.run(), 10);
    near(fixture.endOf(0, 0, 1), 0);
    near(fixture.endOf(0, 0, 3), 6);
    near(fixture.endOf(0, 0, 4), 9);
    near(fixture.endOf(1, 0, 1), 6);
    near(fixture.endOf(1, 0, 2), 9);
  }
}

/// A message that is long there when it is asked for takes no more time.
void lateReceiver() {
  Fixture fixture(planOf({{{send(1, arena(0), 1000)}},
                          {{launch(1, {}), recv(1, arena(0), 1000)}}}),
                  costs({{"other", 0.020}}, {{"edge", 0.005, 1e6}}));
  near(fixture.run(), 20);
}

/// A collective begins when its last member comes and takes, over a link of a
/// byte per microsecond, what each of 4 members sends.
void collectives() {
  struct Case {
    Opcode opcode;
    double ms;
  };
  constexpr uint64_t count = 1000; // f32: 4 ms
  for (const Case &expected : {Case{Opcode::AllReduce, 2 * 3. / 4 * 4},
                               {Opcode::ReduceScatter, 3 * 4},
                               {Opcode::AllGather, 3 * 4},
                               {Opcode::Broadcast, 4},
                               {Opcode::AllToAll, 3 * 4}}) {
    std::vector<StreamActions> ranks;
    for (uint32_t r = 0; r < 4; ++r) {
      Action action;
      action.opcode = expected.opcode;
      action.addresses = {arena(0), arena(1 << 20)};
      action.imm = {0, uint64_t(DType::F32), count, 0, 0};
      // Rank r comes at 3 * r.
      ranks.push_back({{std::vector<Action>(r, launch(1, {}))}});
      ranks.back()[0].push_back(action);
    }
    Fixture fixture(planOf(ranks),
                    costs({{"other", 0.003}}, {{"*", 0.002, 1e6}}));
    for (int i = 0; i < 3; ++i) {
      near(fixture.run(), 9 + 2 + expected.ms);
      for (uint32_t r = 0; r < 4; ++r)
        near(fixture.endOf(r, 0, r),
             9 + 2 + expected.ms +
                 double(int64_t(fixture.event(3, 0, 0).begin -
                                fixture.event(r, 0, 0).begin)) /
                     kMs);
    }
  }
}

/// Copies, zero fills and accumulations take what their bytes take.
void memory() {
  Plan plan = planOf(
      {{{copy(arena(0), arena(8192), 3000), fillZero(arena(0), 2000),
         accumulate(arena(0), arena(8192), DType::F32, 250, kAccumulateAdd)}}});
  near(Fixture(plan, {{}, {}, 1e6}).run(), 3 + 2 + 1);
  near(Fixture(plan, {{}, {}, kNever}).run(), 0);
}

/// What a flag skips takes no time.
void flags() {
  Plan plan = planOf({{{launch(1, {}), launch(1, {}), launch(1, {})}}});
  plan.classes[0].entries["step"][0][1].predicate = whenSet(0);
  Fixture fixture(plan, costs({{"other", 0.001}}));
  near(fixture.run(0), 2);
  near(fixture.run(1), 3);
  CHECK(fixture.executor->ranks()[0]->stats(0).skipped == 1);
}

/// Thousands of short actions are late by no more than the last one.
void latenessDoesNotAddUp() {
  Plan plan = planOf({{std::vector<Action>(5000, launch(1, {}))}});
  Fixture fixture(plan, costs({{"other", 10e-6}}));
  uint64_t best = ~uint64_t(0);
  for (int i = 0; i < 3; ++i) {
    uint64_t begin = nowNs();
    near(fixture.run(), 50);
    best = std::min(best, nowNs() - begin);
  }
  CHECK(best < 100 * kMs);
}

/// A device without data gets along without inputs and without memory.
void nothingIsRead() {
  Plan plan = planOf(std::vector<StreamActions>(
      64, {{launch(0, {{Space::Input, 0, 128}}), launch(0, {arena(0)})}}));
  plan.inputs = {{"x", DType::F32, 64, 64}};
  Fixture fixture(plan, costs({{"k", 0.001}}));
  near(fixture.run(), 2);
}

/// Failures end a run as on every device, also in the middle of an action.
void failures() {
  Plan stuck = planOf({{{launch(1, {}, "slow")}}, {{recv(1, arena(0), 8)}}});
  stuck.classes[0].entries["step"][0].push_back(send(1, arena(0), 8));
  WorldOptions options;
  options.timeoutSeconds = 0.3;
  Fixture fixture(stuck, costs({{"slow", 100}}), options);
  uint64_t begin = nowNs();
  CHECK_CONTAINS(messageOf([&] { fixture.run(); }),
                 "rank 0 made no progress for 0.3 s: rank 0 was in launch "
                 "'slow' (stream compute)");
  Fixture other(planOf({{{launch(1, {}, "slow")}}}), costs({{"slow", 100}}));
  bool interrupted = false;
  try {
    other.executor->run("step", 0, {}, {}, false, [] { return true; });
  } catch (const Interrupted &) {
    interrupted = true;
  }
  CHECK(interrupted && nowNs() - begin < 20000 * kMs);
}

} // namespace

int main() {
  patterns();
  streamsOverlap();
  budgets();
  messages();
  lateReceiver();
  collectives();
  memory();
  flags();
  latenessDoesNotAddUp();
  nothingIsRead();
  failures();
}
