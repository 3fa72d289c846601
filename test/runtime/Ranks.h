// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one function on every rank, as threads of this process or as processes.
// With a link, communicators move nothing. Communicator 0 has all ranks,
// communicator 1 + r is the channel from rank r to the next in the ring, the
// last has all ranks again.
#ifndef PIPER_TEST_RUNTIME_RANKS_H
#define PIPER_TEST_RUNTIME_RANKS_H

#include "Check.h"
#include "runtime/comm/Link.h"
#include "runtime/comm/SharedMemoryCommunicator.h"
#include "runtime/plan/Actions.h"

#include <sys/wait.h>
#include <thread>
#include <unistd.h>

/// Messages that a run of the test plan may send on each channel.
constexpr uint32_t kMessages = 8;

struct RankContext {
  uint32_t rank = 0, size = 0;
  char *arena = nullptr;
  piper::runtime::World *world = nullptr;
  piper::runtime::Timeline timeline;
  std::unique_ptr<piper::runtime::Waiter> waiter;
  std::vector<std::unique_ptr<piper::runtime::Communicator>> communicators;

  uint32_t numCommunicators() const { return uint32_t(communicators.size()); }
  piper::runtime::Communicator &communicator(uint32_t index) {
    return *communicators[index];
  }
};

class Ranks {
public:
  using Body = std::function<void(RankContext &)>;

  Ranks(uint32_t size, uint64_t arenaBytes,
        piper::runtime::WorldOptions options = {},
        const piper::runtime::Link *link = nullptr)
      : size(size), options(std::move(options)), link(link),
        plan(std::make_shared<piper::plan::Plan>()) {
    using namespace piper::plan;
    plan->worldSize = size;
    std::vector<uint32_t> all;
    for (uint32_t r = 0; r < size; ++r)
      all.push_back(r);
    plan->communicators.push_back({"all", {all}});
    for (uint32_t r = 0; r < size && size > 1; ++r)
      plan->communicators.push_back(
          {"channel" + std::to_string(r), {{r, (r + 1) % size}}});
    plan->communicators.push_back({"all again", {all}});
    for (uint32_t r = 0; r < size; ++r) {
      RankClass rankClass;
      rankClass.ranks = {r};
      rankClass.arenaBytes = arenaBytes;
      rankClass.streams = {{"compute", 0, 0}, {"comm", 0, 0}};
      std::vector<Action> sends;
      for (uint32_t k = 0; k < kMessages && size > 1; ++k)
        sends.push_back(send(1 + r, {}, 8));
      rankClass.entries["step"] = {sends, {}};
      plan->classes.push_back(rankClass);
    }
  }

  void runThreads(const Body &body) {
    std::vector<uint32_t> all;
    for (uint32_t r = 0; r < size; ++r)
      all.push_back(r);
    piper::runtime::World world(plan, 1, all, options);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < size; ++r)
      threads.emplace_back([&, r] { run(world, r, body); });
    for (std::thread &thread : threads)
      thread.join();
  }

  void runProcesses(const Body &body) {
    std::vector<int> toParent(2 * size), toChild(2 * size);
    std::vector<pid_t> children;
    for (uint32_t r = 0; r < size; ++r) {
      CHECK(pipe(&toParent[2 * r]) == 0 && pipe(&toChild[2 * r]) == 0);
      pid_t child = fork();
      if (child == 0) {
        runChild(r, toParent[2 * r + 1], toChild[2 * r], body);
        _exit(0);
      }
      children.push_back(child);
    }
    // Every child says where its segment is, hears of all, and says it is
    // there.
    std::string handles;
    for (uint32_t r = 0; r < size; ++r)
      handles += readLine(toParent[2 * r]) + "\n";
    for (uint32_t r = 0; r < size; ++r)
      writeAll(toChild[2 * r + 1], handles);
    for (uint32_t r = 0; r < size; ++r)
      readLine(toParent[2 * r]);
    for (uint32_t r = 0; r < size; ++r)
      writeAll(toChild[2 * r + 1], "go\n");
    for (pid_t child : children) {
      int status = 0;
      CHECK(waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int fd : toParent)
      close(fd);
    for (int fd : toChild)
      close(fd);
  }

private:
  void run(piper::runtime::World &world, uint32_t rank, const Body &body) {
    using namespace piper::runtime;
    RankContext context;
    context.rank = rank;
    context.size = size;
    context.arena = world.segment(rank).space(piper::plan::Space::Arena);
    context.world = &world;
    context.waiter = std::make_unique<Waiter>(
        world, rank, 0, link ? &context.timeline : nullptr);
    for (uint32_t c = 0; c < plan->communicators.size(); ++c) {
      uint32_t group = 0, position = 0;
      context.communicators.push_back(
          piper::plan::findPosition(plan->communicators[c], rank, group,
                                    position)
              ? std::make_unique<SharedMemoryCommunicator>(world, rank, c, link)
              : nullptr);
    }
    body(context);
  }

  void runChild(uint32_t rank, int out, int in, const Body &body) {
    piper::runtime::World world(plan, 1, {rank}, options);
    writeAll(out, world.handles()[0] + "\n");
    std::vector<std::string> handles;
    for (uint32_t r = 0; r < size; ++r)
      handles.push_back(readLine(in));
    if (size > 1)
      world.connect(handles);
    writeAll(out, "ready\n");
    readLine(in);
    run(world, rank, body);
  }

  static std::string readLine(int fd) {
    std::string line;
    char c = 0;
    while (read(fd, &c, 1) == 1 && c != '\n')
      line.push_back(c);
    return line;
  }
  static void writeAll(int fd, const std::string &text) {
    CHECK(write(fd, text.data(), text.size()) == ssize_t(text.size()));
  }

  uint32_t size;
  piper::runtime::WorldOptions options;
  const piper::runtime::Link *link;
  std::shared_ptr<piper::plan::Plan> plan;
};

#endif // PIPER_TEST_RUNTIME_RANKS_H
