// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan's file form: what is written is read back, and nothing else is
// accepted, whatever the bytes.
#include "Check.h"
#include "runtime/plan/Actions.h"
#include "runtime/plan/Utf8.h"

#include <functional>
#include <random>

using namespace piper::plan;

static Address at(Space space, uint64_t offset) { return {space, 0, offset}; }

/// Two classes of two ranks: 0 and 1 send to 2 and 3; both pairs reduce.
static Plan sample() {
  Plan plan;
  plan.worldSize = 4;
  plan.flags = {"fresh", "update"};
  plan.kernels = {{"double_it", 64, {256, 256}}};
  plan.communicators = {{"pair", {{0, 1}, {2, 3}}}, {"edge", {{0, 2}, {1, 3}}}};
  plan.inputs = {{"x", DType::F32, 64, 8}};
  plan.scalars = {{"lr", DType::F64, 8}};
  for (uint32_t c = 0; c < 2; ++c) {
    RankClass cls;
    cls.ranks = {2 * c, 2 * c + 1};
    cls.arenaBytes = 4096;
    cls.stateBytes = 1024;
    cls.scalarBytes = 64;
    cls.peakBytes = 1024;
    cls.numEvents = 1;
    cls.streams = {{"compute", 128, 1}, {"comm", 0, 0}};
    cls.buffers = {{"activation 0", "activation", 0, 256, 0, 2}};
    std::vector<Action> compute, comm;
    Address rows = {Space::Input, 0, 0, 0, 256};
    if (c == 0) {
      compute = {launch(0, {rows, at(Space::Arena, 0)}, "first"), record(0)};
      comm = {wait(0), send(1, at(Space::Arena, 0), 256, "out"), release(1, 0)};
    } else {
      comm = {recv(1, at(Space::Arena, 512), 256, "in"), record(0)};
      compute = {wait(0), accumulate(at(Space::State, 0), at(Space::Arena, 512),
                                     DType::F32, 64, 0)};
    }
    comm.push_back(allReduce(0, at(Space::Arena, 256), at(Space::Arena, 256),
                             DType::F32, 64));
    comm.push_back(allGather(0, {Space::Arena, 0, 1024, 0, 64},
                             at(Space::Arena, 1024), DType::BF16, 32));
    compute.push_back(fillZero(at(Space::Arena, 2048), 16));
    compute.back().predicate = whenClear(1);
    cls.entries["step"] = {compute, comm};
    plan.classes.push_back(cls);
    plan.outputs.push_back({"loss", DType::F32, c, at(Space::Arena, 256), {}});
  }
  plan.states = {{"weight",
                  StateKind::Parameter,
                  DType::F32,
                  {10, 10},
                  {{0, Space::State, 0, -4, 64, 0, 64}}}};
  return plan;
}

static void roundTrip() {
  Plan plan = sample(), again;
  std::string error;
  std::string bytes = serialize(plan);
  if (!parse(bytes, again, error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    CHECK(false);
  }
  CHECK(serialize(again) == bytes);
  CHECK(dump(again) == dump(plan));
  CHECK(again.classes[1].entries.at("step")[1][0].label == "in");
  CHECK(again.states[0].segments[0].elementOffset == -4);
  CHECK_CONTAINS(dump(plan), "all_reduce 'pair' sum 64 f32 root=0 arena+256");
  CHECK_CONTAINS(dump(plan), "fill_zero 16 arena+2048 unless 'update'");
}

static void damage() {
  std::string bytes = serialize(sample());
  Plan plan;
  std::string error;
  for (size_t length = 0; length < bytes.size(); ++length) {
    error.clear();
    CHECK(!parse(std::string_view(bytes).substr(0, length), plan, error));
    CHECK(!error.empty());
  }
  for (size_t i = 0; i < bytes.size(); ++i)
    for (unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = char(damaged[i] ^ flip);
      error.clear();
      CHECK(!parse(damaged, plan, error));
      CHECK(!error.empty());
    }
  CHECK(!parse(bytes + "x", plan, error));
  std::string newer = bytes;
  newer[8] = char(kVersion + 1);
  CHECK(!parse(newer, plan, error));
  CHECK_CONTAINS(error, "expected plan version 2, got 3");
}

/// Repairs the header after the payload was changed.
static void seal(std::string &bytes) {
  auto put = [&](size_t offset, uint64_t value) {
    for (size_t i = 0; i < 8; ++i)
      bytes[offset + i] = char(value >> (8 * i));
  };
  uint64_t sum = 0xcbf29ce484222325u;
  for (size_t i = 32; i < bytes.size(); ++i)
    sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  put(16, bytes.size() - 32);
  put(24, sum);
}

/// Names reach Python, so they must be what Python takes for text; and a small
/// file must not become a large plan.
static void strings() {
  for (const char *text : {"", "a", "é", "€", "\xf0\x9f\x90\x8d", "a é €"})
    CHECK(isUtf8(text));
  for (const char *text :
       {"\x80", "\xc3", "a\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
        "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xff", "\xc3\x28"})
    CHECK(!isUtf8(text));
  std::string bytes = serialize(sample());
  bytes[bytes.find("weight")] = '\xff';
  seal(bytes);
  Plan plan;
  std::string error;
  CHECK(!parse(bytes, plan, error));
  CHECK_CONTAINS(error, "is not UTF-8");

  plan = sample();
  Action wordy = fillZero({}, 0, std::string(100000, 'x'));
  plan.classes[0].entries["step"][0].insert(
      plan.classes[0].entries["step"][0].end(), 1000, wordy);
  std::string small = serialize(plan);
  CHECK(small.size() < 200000);
  CHECK(!parse(small, plan, error));
  CHECK_CONTAINS(error, "plan is damaged: strings of more than");
}

/// Garbage with a right checksum reaches the reader and the validator: they may
/// accept or refuse, but what they accept must be a plan that round-trips.
static void garbage() {
  std::string bytes = serialize(sample());
  std::mt19937 random(1);
  size_t accepted = 0, refused = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string damaged = bytes;
    for (int change = 0; change <= trial % 3; ++change)
      damaged[32 + random() % (damaged.size() - 32)] = char(random());
    if (trial % 7 == 0)
      damaged.resize(32 + random() % (damaged.size() - 32));
    seal(damaged);
    Plan plan;
    std::string error;
    if (parse(damaged, plan, error)) {
      Plan again;
      CHECK(parse(serialize(plan), again, error));
      dump(again);
      ++accepted;
    } else {
      CHECK(!error.empty());
      ++refused;
    }
  }
  CHECK(accepted > 0 && refused > 2000);
}

/// Each change makes the plan wrong in one way, which the message names.
static void refusals() {
  auto refuse = [](const char *message, std::function<void(Plan &)> change) {
    Plan plan = sample();
    change(plan);
    std::string error;
    CHECK(!validate(plan, error));
    CHECK_CONTAINS(error, message);
  };
  auto actions = [](Plan &plan, int cls, int stream) -> std::vector<Action> & {
    return plan.classes[cls].entries["step"][stream];
  };
  refuse("rank 3 belongs to no class",
         [](Plan &p) { p.classes[1].ranks.pop_back(); });
  refuse("rank 2 appears twice", [](Plan &p) { p.classes[0].ranks = {0, 2}; });
  refuse("stream 'compute', action 0 (launch 'first'): expected the number",
         [&](Plan &p) { actions(p, 0, 0)[0].imm[0] = 9; });
  refuse("expected 2 addresses, got 1",
         [&](Plan &p) { actions(p, 0, 0)[0].addresses.pop_back(); });
  refuse("beyond the 4096 bytes",
         [&](Plan &p) { actions(p, 0, 1)[1].addresses[0].offset = 4000; });
  refuse("beyond the 512 bytes",
         [&](Plan &p) { actions(p, 0, 0)[0].addresses[0].stride = 512; });
  refuse("is waited for and never recorded",
         [&](Plan &p) { actions(p, 0, 0)[1] = fillZero({}, 0); });
  refuse("is recorded twice",
         [&](Plan &p) { actions(p, 0, 0).push_back(record(0)); });
  refuse("before its own stream records it", [&](Plan &p) {
    actions(p, 0, 0).insert(actions(p, 0, 0).begin(), wait(0));
  });
  refuse("event 7 of 1", [&](Plan &p) { actions(p, 0, 1)[0].imm[0] = 7; });
  refuse("not the receiver",
         [&](Plan &p) { actions(p, 0, 1)[1].opcode = Opcode::Recv; });
  refuse("message 0 of rank 0 is 128 bytes, of rank 2 256 bytes",
         [&](Plan &p) { actions(p, 0, 1)[1].imm[1] = 128; });
  refuse("release of message 1",
         [&](Plan &p) { actions(p, 0, 1)[2].imm[1] = 1; });
  refuse("overlap other than in place",
         [&](Plan &p) { actions(p, 0, 1)[3].addresses[1].offset = 264; });
  refuse("on one stream",
         [&](Plan &p) { actions(p, 0, 0).push_back(actions(p, 0, 1)[3]); });
  refuse("is not aligned",
         [&](Plan &p) { actions(p, 0, 1)[3].addresses[0].offset = 1026; });
  refuse("predicate refers to flag 5",
         [&](Plan &p) { actions(p, 0, 0)[0].predicate = whenSet(5); });
  refuse("expected an address in arena", [&](Plan &p) {
    actions(p, 0, 1)[1].addresses[0] = {Space::Input, 0, 0};
  });
  refuse("needs a workspace of 64 bytes, the stream has 8",
         [](Plan &p) { p.classes[0].streams[0].workspaceBytes = 8; });
  refuse(
      "collective 0 of rank 0 is all_reduce sum of 64 f32, root 0, of rank 1",
      [&](Plan &p) {
        RankClass alone = p.classes[0];
        p.classes[0].ranks = {0};
        alone.ranks = {1};
        alone.entries["step"][1][3].imm[2] = 63;
        p.classes.push_back(alone);
      });
  refuse("offset 8 is outside a scalar area",
         [](Plan &p) { p.classes[1].scalarBytes = 12; });
  refuse("state 'weight': segment of 256 bytes at 1000",
         [](Plan &p) { p.states[0].segments[0].byteOffset = 1000; });
  refuse("state 'weight': tensor of 18446744073709551615 bytes",
         [](Plan &p) { p.states[0].shape = {0, uint64_t(1) << 63}; });
  refuse("output 'loss': tensor of 18446744073709551615 bytes",
         [](Plan &p) { p.outputs[0].shape = {uint64_t(1) << 63, 0}; });
  refuse("output 'loss' of class '0' appears twice",
         [](Plan &p) { p.outputs.push_back(p.outputs[0]); });
}

int main() {
  std::string error;
  if (!validate(sample(), error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  roundTrip();
  damage();
  strings();
  garbage();
  refusals();
}
