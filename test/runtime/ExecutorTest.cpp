// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The executor on hand-written plans, with kernels that are functions of this
// test.
#include "runtime/Executor.h"
#include "Check.h"
#include "runtime/StateAccess.h"
#include "runtime/comm/SharedWord.h"
#include "runtime/cpu/CpuDevice.h"
#include "runtime/cpu/KernelFailure.h"

#include <chrono>
#include <cstring>
#include <thread>

using namespace piper;
using namespace piper::plan;
using namespace piper::runtime;

namespace {

class TestDevice : public CpuDevice {
public:
  using Kernel = void (*)(void *const *);
  std::map<std::string, Kernel> functions;
  const void *findKernel(const std::string &symbol,
                         const std::string &) const override {
    auto it = functions.find(symbol);
    return it == functions.end() ? nullptr
                                 : reinterpret_cast<const void *>(it->second);
  }
};

Address arena(uint64_t offset) { return {Space::Arena, 0, offset}; }
Address state(uint64_t offset) { return {Space::State, 0, offset}; }

/// A plan of `worldSize` ranks, each its own class, with the named streams.
Plan emptyPlan(uint32_t worldSize, std::vector<std::string> streams) {
  Plan plan;
  plan.worldSize = worldSize;
  for (uint32_t r = 0; r < worldSize; ++r) {
    RankClass rankClass;
    rankClass.ranks = {r};
    rankClass.arenaBytes = rankClass.stateBytes = 8192;
    rankClass.scalarBytes = 64;
    rankClass.numEvents = 8;
    for (const std::string &name : streams)
      rankClass.streams.push_back({name, 256, 0});
    rankClass.entries["step"].resize(streams.size());
    plan.classes.push_back(rankClass);
  }
  return plan;
}

class Fixture {
public:
  explicit Fixture(Plan plan, std::map<std::string, TestDevice::Kernel> kernels,
                   WorldOptions options = {}) {
    std::string error;
    if (!validate(plan, error)) {
      std::fprintf(stderr, "%s\n", error.c_str());
      CHECK(false);
    }
    auto device = std::make_shared<TestDevice>();
    device->functions = std::move(kernels);
    std::vector<uint32_t> ranks;
    for (uint32_t r = 0; r < plan.worldSize; ++r)
      ranks.push_back(r);
    executor = std::make_unique<Executor>(
        std::make_shared<Plan>(std::move(plan)), 1, device, ranks, options);
  }
  void run(uint64_t flags = 0, std::vector<HostTensor> inputs = {},
           std::vector<ScalarValue> scalars = {}, bool trace = false) {
    executor->run("step", flags, inputs, scalars, trace);
  }
  float *arena(uint32_t rank, uint64_t offset = 0) {
    return reinterpret_cast<float *>(
        executor->world().segment(rank).space(Space::Arena) + offset);
  }
  std::unique_ptr<Executor> executor;
};

std::string messageOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &error) {
    return error.what();
  }
  CHECK(false);
  return "";
}

//===----------------------------------------------------------------------===//

std::atomic<int> present{0};

/// Returns only if the other call of it runs at the same time.
void rendezvous(void *const *) {
  present.fetch_add(1);
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (present.load() < 2)
    if (std::chrono::steady_clock::now() > end)
      return piper_kernel_fail("the other stream does not run");
}

void streamsOverlap() {
  Plan plan = emptyPlan(1, {"compute", "comm"});
  plan.kernels = {{"rendezvous", 0, {}}};
  for (std::vector<Action> &stream : plan.classes[0].entries["step"])
    stream = {launch(0, {}, "meet")};
  Fixture fixture(plan, {{"rendezvous", rendezvous}});
  fixture.run();
  // The same two kernels on one stream cannot meet.
  present.store(0);
  plan.classes[0].entries["step"] = {{launch(0, {}, "first"), launch(0, {})},
                                     {}};
  // Shortened by the failure of the first, which waits its 2 seconds.
  CHECK_CONTAINS(
      messageOf([&] { Fixture(plan, {{"rendezvous", rendezvous}}).run(); }),
      "rank 0 failed in launch 'first' (stream compute): the other "
      "stream does not run");
}

std::atomic<bool> sendHasReturned{false};
void markSent(void *const *) { sendHasReturned.store(true); }
void awaitSent(void *const *) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!sendHasReturned.load())
    if (std::chrono::steady_clock::now() > end)
      return piper_kernel_fail("the send waits for its receiver");
}

/// Rank 0 does something after its send before rank 1 asks for the message.
void sendLeavesBeforeItIsAskedFor() {
  Plan plan = emptyPlan(2, {"compute"});
  plan.communicators = {{"edge", {{0, 1}}}};
  plan.kernels = {{"mark", 0, {}}, {"await", 0, {}}};
  plan.classes[0].entries["step"][0] = {send(0, arena(0), 64), launch(0, {})};
  plan.classes[1].entries["step"][0] = {launch(1, {}), recv(0, arena(64), 64)};
  Fixture fixture(plan, {{"mark", markSent}, {"await", awaitSent}});
  for (int i = 0; i < 3; ++i) {
    sendHasReturned.store(false);
    fixture.arena(0)[3] = float(i + 1);
    fixture.run();
    CHECK(fixture.arena(1, 64)[3] == float(i + 1));
  }
}

void slow(void *const *) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}
void addOne(void *const *args) { *static_cast<float *>(args[0]) += 1; }

/// Rank 0 sends a buffer, overwrites it after the release, and sends again;
/// rank 1 is slow. Without the release it would see the second value twice.
void releaseProtectsABuffer() {
  Plan plan = emptyPlan(2, {"compute"});
  plan.communicators = {{"edge", {{0, 1}}}};
  plan.kernels = {{"add_one", 0, {4}}, {"slow", 0, {}}};
  plan.classes[0].entries["step"][0] = {
      send(0, arena(0), 4), release(0, 0), launch(0, {arena(0)}),
      send(0, arena(0), 4), release(0, 1), launch(0, {arena(0)})};
  plan.classes[1].entries["step"][0] = {launch(1, {}), recv(0, arena(0), 4),
                                        launch(1, {}), recv(0, arena(4), 4)};
  Fixture fixture(plan, {{"add_one", addOne}, {"slow", slow}});
  for (int i = 0; i < 3; ++i) {
    fixture.run();
    CHECK(fixture.arena(1)[0] == float(2 * i));
    CHECK(fixture.arena(1)[1] == float(2 * i + 1));
  }
}

/// Flags select actions, skipped sends and receives stay matched, records mark
/// even when skipped, and the end of an entry releases what was sent.
void flagsSelectActions() {
  Plan plan = emptyPlan(2, {"compute", "comm"});
  plan.flags = {"fresh", "talk"};
  plan.communicators = {{"edge", {{0, 1}}}};
  plan.kernels = {{"add_one", 0, {4}}};
  Action first = send(0, arena(0), 4), second = send(0, arena(4), 4);
  first.predicate = whenSet(1);
  Action event = record(0);
  event.predicate = whenSet(1);
  plan.classes[0].entries["step"] = {
      {launch(0, {arena(0)}), event},
      {wait(0), first, second, release(0, 0), release(0, 1)}};
  plan.classes[0].entries["step"][0][0].predicate = whenClear(1);
  Action receive = recv(0, arena(0), 4);
  receive.predicate = whenSet(1);
  plan.classes[1].entries["step"] = {
      {receive, recv(0, arena(4), 4)},
      {accumulate(state(0), state(4), DType::F32, 1, 0)}};
  Fixture fixture(plan, {{"add_one", addOne}});
  float *source = fixture.arena(0), *target = fixture.arena(1);
  World &world = fixture.executor->world();
  float *sum = reinterpret_cast<float *>(world.segment(1).space(Space::State));
  source[1] = 7;
  sum[0] = 100;
  sum[1] = 2;
  fixture.run(0); // Not fresh, not talking: adds one to source[0].
  CHECK(source[0] == 1 && target[0] == 0 && target[1] == 7 && sum[0] == 102);
  fixture.run(3); // Fresh and talking.
  CHECK(source[0] == 1 && target[0] == 1 && sum[0] == 2);
  fixture.run(2);
  CHECK(sum[0] == 4);
  const StreamStats &stats = fixture.executor->ranks()[0]->stats(0);
  CHECK(stats.actions == 4 && stats.skipped == 2);
}

void copyRow(void *const *args) {
  std::memcpy(args[1], args[0], 8);
  std::memcpy(static_cast<char *>(args[1]) + 8, args[2], 8);
}

/// Ranks of one class read their own rows; scalars reach all ranks; the
/// workspace comes last; the high-water mark is the end of what was touched.
void inputsScalarsAndMemory() {
  Plan plan = emptyPlan(1, {"compute"});
  plan.worldSize = 2;
  plan.classes[0].ranks = {0, 1};
  plan.communicators = {{"rows", {{0, 1}}}};
  plan.inputs = {{"x", DType::F32, 8, 2}};
  plan.scalars = {{"lr", DType::F64, 16}, {"n", DType::I64, 24}};
  plan.kernels = {{"copy_row", 64, {8, 16, 8}}};
  plan.classes[0].entries["step"][0] = {launch(
      0, {{Space::Input, 0, 0, 0, 8}, arena(128), {Space::Scalar, 0, 16}})};
  plan.outputs = {{"y", DType::F32, 0, arena(128), {2}}};
  Fixture fixture(plan, {{"copy_row", copyRow}});
  std::vector<float> x = {1, 2, 3, 4};
  char *data = reinterpret_cast<char *>(x.data());
  fixture.run(0, {{data, 16, 0}}, {{0, 0.5, 0}, {1, 0, 9}}, true);
  for (uint32_t rank : {0, 1}) {
    CHECK(fixture.arena(rank, 128)[0] == x[2 * rank]);
    CHECK(*reinterpret_cast<double *>(fixture.arena(rank, 136)) == 0.5);
    CHECK(fixture.executor->ranks()[rank]->stats(0).arenaEnd == 144);
    const std::vector<TraceEvent> &trace =
        fixture.executor->ranks()[rank]->trace(0);
    CHECK(trace.size() == 1 && trace[0].end >= trace[0].begin);
  }
  const char *output = fixture.executor->output("y");
  CHECK(output && std::memcmp(output, x.data(), 8) == 0);
  CHECK(!fixture.executor->output("z"));
  CHECK_CONTAINS(messageOf([&] { fixture.run(0, {{data, 8, 0}}); }),
                 "input 'x': rank 1 reads bytes 8 to 16");
  CHECK_CONTAINS(messageOf([&] { fixture.run(0, {}); }), "expected 1 inputs");
  fixture.run(0, {{data, 16, 0}});
}

/// A flat bucket of 10 elements in shards of 4: "a" is elements 0 to 6, "b" the
/// rest; "c" is replicated with padding between its rows.
void stateParts() {
  Plan plan = emptyPlan(1, {"compute"});
  plan.worldSize = 3;
  plan.classes[0].ranks = {0, 1, 2};
  plan.communicators = {{"shards", {{0, 1, 2}}}};
  StateSegment a = {0, Space::State, 0, 0, 4, 0, 4};
  StateSegment b = {0, Space::State, 0, -7, 4, 0, 4};
  StateSegment c = {0, Space::State, 64, 0, 2, -1, 0, 3, 2};
  StateSegment part = {0, Space::State, 128, 0, 1, 0, 1};
  plan.states = {{"a", StateKind::Parameter, DType::F32, {7}, {a}},
                 {"b", StateKind::Parameter, DType::F32, {3}, {b}},
                 {"c", StateKind::Parameter, DType::F32, {3, 2}, {c}},
                 {"part", StateKind::Parameter, DType::F32, {4}, {part}}};
  Fixture fixture(plan, {});
  World &world = fixture.executor->world();
  std::vector<std::vector<float>> values = {
      {1, 2, 3, 4, 5, 6, 7}, {8, 9, 10}, {11, 12, 13, 14, 15, 16}};
  for (uint32_t i = 0; i < values.size(); ++i)
    writeState(world, i, reinterpret_cast<const char *>(values[i].data()));
  for (uint32_t i = 0; i < values.size(); ++i) {
    std::vector<float> again(values[i].size());
    readState(world, findState(plan, plan.states[i].name),
              reinterpret_cast<char *>(again.data()));
    CHECK(again == values[i]);
  }
  float *shard =
      reinterpret_cast<float *>(world.segment(1).space(Space::State));
  CHECK(shard[0] == 5 && shard[2] == 7 && shard[3] == 8);
  float rest[4];
  CHECK_CONTAINS(
      messageOf([&] { readState(world, 3, reinterpret_cast<char *>(rest)); }),
      "no rank holds all of state 'part'");
  // The lowest holder is read.
  reinterpret_cast<float *>(world.segment(0).space(Space::State) + 64)[5] = 99;
  std::vector<float> read(6);
  readState(world, 2, reinterpret_cast<char *>(read.data()));
  CHECK(read[5] == 99);
  CHECK(readCopy(world, 1, 2, reinterpret_cast<char *>(read.data())));
  CHECK(read == values[2]);
  std::vector<float> seven(7);
  CHECK(!readCopy(world, 1, 0, reinterpret_cast<char *>(seven.data())));
}

void fails(void *const *) { piper_kernel_fail("index 9 is out of range"); }

/// A kernel that fails ends the run on all ranks, and the program says so from
/// then on.
void failureEndsTheRun() {
  Plan plan = emptyPlan(3, {"compute"});
  plan.communicators = {{"all", {{0, 1, 2}}}};
  plan.kernels = {{"fails", 0, {}}};
  for (uint32_t r = 0; r < 3; ++r) {
    std::vector<Action> &actions = plan.classes[r].entries["step"][0];
    if (r == 1)
      actions.push_back(launch(0, {}, "lookup"));
    actions.push_back(allReduce(0, arena(0), arena(0), DType::F32, 1));
  }
  Fixture fixture(plan, {{"fails", fails}});
  for (int i = 0; i < 2; ++i)
    CHECK_CONTAINS(messageOf([&] { fixture.run(); }),
                   "rank 1 failed in launch 'lookup' (stream compute): index 9 "
                   "is out of range");
}

void sleepLong(void *const *) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
}

/// Rank 0 waits for 1, which waits for 2, which stands still: 2 is named.
void stallNamesTheEndOfTheChain() {
  Plan plan = emptyPlan(3, {"compute"});
  plan.communicators = {{"a", {{1, 0}}}, {"b", {{2, 1}}}};
  plan.kernels = {{"sleep_long", 0, {}}};
  plan.classes[0].entries["step"][0] = {recv(0, arena(0), 4)};
  plan.classes[1].entries["step"][0] = {recv(1, arena(0), 4),
                                        send(0, arena(0), 4)};
  plan.classes[2].entries["step"][0] = {launch(0, {}, "B 3"),
                                        send(1, arena(0), 4)};
  WorldOptions options;
  options.timeoutSeconds = 0.4;
  Fixture fixture(plan, {{"sleep_long", sleepLong}}, options);
  CHECK_CONTAINS(messageOf([&] { fixture.run(); }),
                 "rank 2 made no progress for 0.4 s: rank 2 was in launch "
                 "'B 3' (stream compute)");
}

void interruptEndsTheRun() {
  Plan plan = emptyPlan(2, {"compute"});
  plan.communicators = {{"a", {{0, 1}}}};
  plan.kernels = {{"sleep_long", 0, {}}};
  plan.classes[0].entries["step"][0] = {launch(0, {}), send(0, arena(0), 4)};
  plan.classes[1].entries["step"][0] = {recv(0, arena(0), 4)};
  Fixture fixture(plan, {{"sleep_long", sleepLong}});
  bool interrupted = false;
  try {
    fixture.executor->run("step", 0, {}, {}, false, [] { return true; });
  } catch (const Interrupted &) {
    interrupted = true;
  }
  CHECK(interrupted);
}

void nothing(void *const *) {}

/// Prints what an action costs; the bound is loose, for loaded machines.
void overhead() {
  constexpr int kActions = 10000;
  Plan plan = emptyPlan(1, {"compute"});
  plan.kernels = {{"nothing", 0, {4, 4}}};
  plan.classes[0].entries["step"][0].assign(kActions,
                                            launch(0, {arena(0), arena(4)}));
  Fixture fixture(plan, {{"nothing", nothing}});
  uint64_t best = ~uint64_t(0);
  for (int i = 0; i < 10; ++i) {
    uint64_t begin = nowNs();
    fixture.run();
    best = std::min(best, nowNs() - begin);
  }
  double perAction = double(best) / kActions;
  std::printf("%.1f ns per action\n", perAction);
  CHECK(perAction < 2000);
}

} // namespace

int main() {
  streamsOverlap();
  sendLeavesBeforeItIsAskedFor();
  releaseProtectsABuffer();
  flagsSelectActions();
  inputsScalarsAndMemory();
  stateParts();
  failureEndsTheRun();
  stallNamesTheEndOfTheChain();
  interruptEndsTheRun();
  overhead();
}
