// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ListSchedule.cpp - one global order for a graph --------------------===//
//
// Turns a graph into tasks for the list scheduler and puts the block in the
// order that comes out. That one order is what every rank follows, stream by
// stream, so both sides of a message and all members of a collective agree:
// the operation that comes first among those not done can always run.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/schedule/Durations.h"
#include "passes/schedule/ListScheduler.h"
#include "passes/schedule/Prefetch.h"
#include "llvm/ADT/MapVector.h"

namespace piper {
#define GEN_PASS_DEF_LISTSCHEDULE
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
class GraphScheduler {
public:
  explicit GraphScheduler(GraphOp graph)
      : graph(graph), body(graph.getBody().front()), durations(graph) {}

  LogicalResult run();

private:
  void collectTasks();
  void addTask(Operation *op);
  void addLease(schedule::Task &task, ComputeOp node);
  void closeWhereReceived();
  void limitPools();
  uint32_t countHops(uint32_t pool);
  void emit(Operation *op);
  void emitOperands(Operation *op);
  void rebuild(ArrayRef<uint32_t> order);
  void sortContributions();

  GraphOp graph;
  Block &body;
  Durations durations;
  schedule::Problem problem;
  SmallVector<Operation *> ops; // by task
  llvm::DenseMap<Operation *, uint32_t> tasks;
  /// Tasks that an operation which is no task stands for.
  llvm::DenseMap<Operation *, SmallVector<uint32_t>> behind;
  llvm::MapVector<std::pair<Attribute, Attribute>, uint32_t> resources;
  /// Pools by device group, leases by device group and microbatch.
  llvm::MapVector<Attribute, uint32_t> pools;
  /// Groups that have backwards.
  llvm::DenseSet<Attribute> trained;
  llvm::DenseMap<std::pair<Attribute, int64_t>, uint32_t> leases;
  /// The new order.
  SmallVector<Operation *> sequence;
  llvm::DenseSet<Operation *> emitted;
};
} // namespace

/// Between its forwards and its backwards, a microbatch keeps activations alive
/// in a device group.
void GraphScheduler::addLease(schedule::Task &task, ComputeOp node) {
  Attribute group = node.getRanksAttr();
  int64_t microbatch = node.getMicrobatch();
  auto [pool, isNewPool] = pools.insert({group, pools.size()});
  auto [lease, isNewLease] =
      leases.try_emplace({group, microbatch}, problem.leases.size());
  if (isNewLease)
    problem.leases.push_back({pool->second});
  if (node.getPass() == PassKind::F) {
    task.opens = lease->second;
  } else {
    task.closes.push_back(lease->second);
    trained.insert(group);
  }
}

void GraphScheduler::addTask(Operation *op) {
  auto schedulable = cast<SchedulableOpInterface>(op);
  schedule::Task task;
  task.duration = durations.of(op);
  auto [resource, isNew] = resources.insert(
      {{schedulable.getRanksAttr(), schedulable.getStreamAttr()},
       resources.size()});
  task.resource = resource->second;
  task.predecessors.assign(behind[op].begin(), behind[op].end());
  if (auto node = dyn_cast<ComputeOp>(op)) {
    task.microbatch = node.getMicrobatch();
    addLease(task, node);
  } else if (auto send = dyn_cast<SendOp>(op)) {
    task.microbatch = send.getMicrobatch();
  } else if (auto recv = dyn_cast<RecvOp>(op)) {
    task.microbatch = recv.getMicrobatch();
  } else if (isa<AccumulateOp>(op)) {
    // Takes no time, but what follows can overlap with the backward.
    task.microbatch = -1;
  }
  tasks[op] = ops.size();
  ops.push_back(op);
  problem.tasks.push_back(std::move(task));
}

void GraphScheduler::collectTasks() {
  for (Operation &op : body.without_terminator()) {
    llvm::SmallSetVector<uint32_t, 8> before;
    for (Value operand : op.getOperands()) {
      Operation *producer = operand.getDefiningOp();
      auto task = tasks.find(producer);
      if (task != tasks.end())
        before.insert(task->second);
      else
        before.insert_range(behind[producer]);
    }
    behind[&op] = before.takeVector();
    // Gathers of parameters follow the order of the nodes they serve.
    if (isa<SchedulableOpInterface>(op) && !isPrefetch(&op))
      addTask(&op);
  }
}

/// A group without backwards (nothing to train, or an evaluation) must not run
/// ahead without limit either: its activations are done with where they are
/// received and used.
void GraphScheduler::closeWhereReceived() {
  for (auto send : body.getOps<SendOp>()) {
    if (trained.contains(send.getRanksAttr()))
      continue;
    auto lease = leases.find(
        {send.getRanksAttr(), static_cast<int64_t>(send.getMicrobatch())});
    if (lease == leases.end())
      continue;
    auto recv = cast<RecvOp>(*send.getMessage().user_begin());
    for (Operation *user : recv.getResult().getUsers())
      if (auto task = tasks.find(user); task != tasks.end())
        problem.tasks[task->second].closes.push_back(lease->second);
  }
}

/// The most transfers on a path from a task of the first microbatch that takes
/// a lease of `pool` to one that gives it back.
uint32_t GraphScheduler::countHops(uint32_t pool) {
  constexpr int64_t unreached = -1;
  std::vector<int64_t> hops(ops.size(), unreached);
  int64_t most = 0;
  for (uint32_t number = 0; number < ops.size(); ++number) {
    const schedule::Task &task = problem.tasks[number];
    if (task.microbatch != 0)
      continue;
    for (uint32_t before : task.predecessors)
      hops[number] = std::max(hops[number], hops[before]);
    if (isa<SendOp>(ops[number]) && hops[number] != unreached)
      ++hops[number];
    if (task.opens && problem.leases[*task.opens].pool == pool)
      hops[number] = std::max<int64_t>(hops[number], 0);
    if (llvm::any_of(task.closes, [&](uint32_t lease) {
          return problem.leases[lease].pool == pool;
        }))
      most = std::max(most, hops[number]);
  }
  return most;
}

/// As many microbatches alive as fill the way to the last group and back, or to
/// the last user: more would only cost memory. Where directives give the order
/// of a group's forwards and backwards they decide.
void GraphScheduler::limitPools() {
  problem.poolLimits.resize(pools.size());
  for (auto [group, pool] : pools) {
    uint32_t hops = countHops(pool);
    problem.poolLimits[pool] = 1 + (trained.contains(group) ? hops / 2 : hops);
  }
  for (Operation *op : ops)
    if (auto node = dyn_cast<ComputeOp>(op);
        node && !node.getAfter().empty() &&
        trained.contains(node.getRanksAttr()))
      problem.poolLimits[pools.lookup(node.getRanksAttr())] = UINT32_MAX;
}

void GraphScheduler::emitOperands(Operation *op) {
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp();
        producer && !emitted.contains(producer))
      emit(producer);
}

/// Views and reads come right before their first user.
void GraphScheduler::emit(Operation *op) {
  emitOperands(op);
  if (emitted.insert(op).second)
    sequence.push_back(op);
}

void GraphScheduler::rebuild(ArrayRef<uint32_t> order) {
  SmallVector<ComputeOp> nodes;
  for (uint32_t task : order)
    if (auto node = dyn_cast<ComputeOp>(ops[task]))
      nodes.push_back(node);
  PrefetchPlan prefetches = planPrefetches(nodes);

  for (Operation &op : body)
    if (isa<InputOp, ReadOp>(op))
      emit(&op);
  for (uint32_t task : order) {
    Operation *op = ops[task];
    for (Operation *gather : prefetches.lookup(op))
      emit(gather);
    // Received right where it is sent, so that every other order of the two
    // sides is out of question, even if the sender waits for its receiver.
    if (isa<RecvOp>(op))
      continue;
    emit(op);
    if (auto send = dyn_cast<SendOp>(op))
      emit(*send.getMessage().user_begin());
  }
  for (Operation &op : body.without_terminator())
    emit(&op);
  for (Operation *op : sequence)
    op->moveBefore(body.getTerminator());
}

/// Contributions are added in the order in which they are made.
void GraphScheduler::sortContributions() {
  llvm::DenseMap<Operation *, unsigned> positions;
  for (auto [position, op] : llvm::enumerate(sequence))
    positions[op] = position;
  for (auto accumulate : body.getOps<AccumulateOp>()) {
    SmallVector<Value> sorted(accumulate.getContributions());
    llvm::stable_sort(sorted, [&](Value a, Value b) {
      return positions.lookup(a.getDefiningOp()) <
             positions.lookup(b.getDefiningOp());
    });
    accumulate.getContributionsMutable().assign(sorted);
  }
}

LogicalResult GraphScheduler::run() {
  for (auto node : body.getOps<ComputeOp>())
    if (!node.getRanksAttr() || !node.getStreamAttr())
      return node.emitOpError("expected a device group and a stream to "
                              "schedule on, got none");
  collectTasks();
  closeWhereReceived();
  limitPools();
  // The block's order shows that the tasks have no cycle.
  std::optional<schedule::Solution> solution = schedule::scheduleTasks(problem);
  rebuild(solution->order);
  sortContributions();
  return success();
}

namespace {
struct ListSchedule : public piper::impl::ListScheduleBase<ListSchedule> {
  void runOnOperation() override {
    for (auto graph : getOperation().getOps<GraphOp>())
      if (failed(GraphScheduler(graph).run()))
        return signalPassFailure();
  }
};
} // namespace
