// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- VerifyScheduled.cpp - closes the scheduled phase -------------------===//

#include "mlir/IR/Builders.h"
#include "passes/Passes.h"
#include "passes/directives/Filter.h"
#include "passes/directives/Groups.h"
#include "passes/schedule/DeadlockProof.h"
#include "llvm/ADT/MapVector.h"

namespace piper {
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

//===----------------------------------------------------------------------===//
// Everything is placed, nothing is left of the imported phase
//===----------------------------------------------------------------------===//

static LogicalResult verifyPlaced(SchedulableOpInterface op) {
  if (!op.getRanksAttr() || op.getRanksAttr().empty())
    return op->emitOpError("expected a device group, got none");
  if (!op.getStreamAttr())
    return op->emitOpError("expected a stream, got none");
  return success();
}

static LogicalResult verifyBucket(Operation *op, FlatSymbolRefAttr name,
                                  const SymbolTable &symbols) {
  if (symbols.lookup<BucketOp>(name.getAttr()))
    return success();
  return op->emitOpError("expected a bucket, got ") << name;
}

static LogicalResult verifyPhase(Operation &op, const SymbolTable &symbols) {
  if (auto schedulable = dyn_cast<SchedulableOpInterface>(op))
    if (failed(verifyPlaced(schedulable)))
      return failure();
  if (auto node = dyn_cast<ComputeOp>(op))
    if (!node.getFunctions() || !node.getVariants() ||
        node.getVariants()->size() != node.getRanks()->size())
      return node.emitOpError("expected a function for each rank of ")
             << describe(node);
  if (auto read = dyn_cast<ReadOp>(op))
    return verifyBucket(read, read.getSourceAttr(), symbols);
  if (auto write = dyn_cast<WriteOp>(op))
    return verifyBucket(write, write.getTargetAttr(), symbols);
  if (auto update = dyn_cast<UpdateOp>(op))
    return verifyBucket(update, update.getTargetAttr(), symbols);
  if (auto terminator = dyn_cast<ReturnOp>(op))
    if (terminator.getValues().size() != 1)
      return terminator.emitOpError("expected one packed value, got ")
             << terminator.getValues().size();
  return success();
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// Both sides count the messages of a stream.
static LogicalResult verifyPair(SendOp send) {
  auto recv = cast<RecvOp>(*send.getMessage().user_begin());
  if (send.getStreamAttr() == recv.getStreamAttr())
    return success();
  InFlightDiagnostic error =
      recv.emitOpError("expected the stream of the send, ")
      << send.getStreamAttr() << ", got " << recv.getStreamAttr();
  error.attachNote(send.getLoc()) << "the send";
  return error;
}

/// Messages between two groups on one stream carry no tags: the order in which
/// they are received must be that in which they are sent.
static LogicalResult verifyMessages(GraphOp graph) {
  using Channel = std::pair<std::pair<Attribute, Attribute>, Attribute>;
  llvm::MapVector<Channel, SmallVector<SendOp>> sent;
  llvm::DenseMap<Channel, size_t> received;
  Block &body = graph.getBody().front();
  for (auto send : body.getOps<SendOp>()) {
    if (failed(verifyPair(send)))
      return failure();
    sent[{{send.getRanksAttr(), send.getToAttr()}, send.getStreamAttr()}]
        .push_back(send);
  }
  for (auto recv : body.getOps<RecvOp>()) {
    auto send = recv.getMessage().getDefiningOp<SendOp>();
    Channel channel{{send.getRanksAttr(), send.getToAttr()},
                    send.getStreamAttr()};
    SendOp expected = sent[channel][received[channel]++];
    if (expected == send)
      continue;
    InFlightDiagnostic error =
        recv.emitOpError("expected messages from ")
        << describe(*send.getRanks()) << " to " << describe(send.getTo())
        << " to be received in the order they are sent in, got one that is "
           "sent later or earlier";
    error.attachNote(expected.getLoc()) << "the message that arrives here";
    error.attachNote(send.getLoc()) << "the message that is expected";
    return error;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

namespace {
/// How often each microbatch contributes to a sum.
struct Contributions {
  AccumulateOp accumulate;
  llvm::MapVector<int64_t, unsigned> perMicrobatch;
  int64_t numMicrobatches = 1;

  LogicalResult add(AccumulateOp part);
  LogicalResult verifyComplete();
};
} // namespace

LogicalResult Contributions::add(AccumulateOp part) {
  accumulate = part;
  llvm::DenseSet<Value> seen;
  for (Value value : accumulate.getContributions()) {
    if (!seen.insert(value).second)
      return accumulate.emitOpError("expected each contribution once, got one "
                                    "twice");
    auto node = value.getDefiningOp<ComputeOp>();
    if (!node)
      continue;
    if (node.getRanksAttr() != accumulate.getRanksAttr())
      return accumulate.emitOpError("expected contributions of its own ranks ")
             << describe(*accumulate.getRanks()) << ", got one of "
             << describe(*node.getRanks());
    ++perMicrobatch[node.getMicrobatch()];
    numMicrobatches = node.getNumMicrobatches();
  }
  return success();
}

LogicalResult Contributions::verifyComplete() {
  for (auto [microbatch, count] : perMicrobatch)
    if (count != perMicrobatch.front().second)
      return accumulate.emitOpError("expected as many contributions from every "
                                    "microbatch, got ")
             << perMicrobatch.front().second << " from microbatch "
             << perMicrobatch.front().first << " and " << count
             << " from microbatch " << microbatch;
  if (!perMicrobatch.empty() &&
      static_cast<int64_t>(perMicrobatch.size()) != numMicrobatches)
    return accumulate.emitOpError("expected contributions from ")
           << numMicrobatches << " microbatches, got " << perMicrobatch.size();
  return success();
}

/// The sum goes into one vector, so it is reduced once.
static LogicalResult verifyPacked(AccumulateOp accumulate) {
  if (accumulate.getResult().hasOneUse() &&
      isa<PackOp>(*accumulate.getResult().user_begin()))
    return success();
  return accumulate.emitOpError("expected the sum to be packed once, got ")
         << llvm::range_size(accumulate.getResult().getUses()) << " uses";
}

/// The state whose gradient a sum is part of, or the element of the packed
/// loss.
static std::pair<Attribute, int64_t> getTarget(AccumulateOp accumulate) {
  if (accumulate.getStateAttr())
    return {accumulate.getStateAttr(), 0};
  OpOperand &use = *accumulate.getResult().use_begin();
  auto pack = cast<PackOp>(use.getOwner());
  return {Attribute(), pack.getSlot(use.getOperandNumber())};
}

/// What an update applies is the bucket's own sum, over all of its ranks.
static LogicalResult verifyReduced(UpdateOp update, BucketOp bucket) {
  Value flat = update.getGradient();
  if (bucket.getRanks().size() > 1) {
    auto reduction = flat.getDefiningOp<CollectiveOpInterface>();
    bool isReduction =
        reduction && (bucket.getShardOptimizer()
                          ? isa<ReduceScatterOp>(reduction.getOperation())
                          : isa<AllReduceOp>(reduction.getOperation()));
    if (!isReduction || reduction.getRanksAttr() != bucket.getRanksAttr())
      return update.emitOpError("expected a gradient that is reduced over ")
             << describe(bucket.getRanks()) << " before it is applied";
    flat = reduction->getOperand(0);
    if (!reduction->getResult(0).hasOneUse())
      return reduction->emitOpError("expected one use of a reduced gradient");
  }
  auto pack = flat.getDefiningOp<PackOp>();
  if (pack && pack->hasOneUse() &&
      pack.getBucketAttr() == update.getTargetAttr())
    return success();
  return update.emitOpError("expected the gradient of ")
         << update.getTargetAttr() << ", packed and used once";
}

static LogicalResult verifyGradients(GraphOp graph,
                                     const SymbolTable &symbols) {
  llvm::DenseMap<Attribute, UpdateOp> updated;
  Block &body = graph.getBody().front();
  // Each device group may train some of the microbatches, and have a part of
  // the contributions of each.
  llvm::MapVector<std::pair<Attribute, int64_t>, Contributions> sums;
  for (auto accumulate : body.getOps<AccumulateOp>()) {
    if (failed(verifyPacked(accumulate)) ||
        failed(sums[getTarget(accumulate)].add(accumulate)))
      return failure();
  }
  for (auto &[target, sum] : sums)
    if (failed(sum.verifyComplete()))
      return failure();
  for (auto update : body.getOps<UpdateOp>()) {
    auto [other, isFirst] = updated.try_emplace(update.getTargetAttr(), update);
    if (!isFirst) {
      InFlightDiagnostic error = update.emitOpError("expected one update of ")
                                 << update.getTargetAttr() << ", got two";
      error.attachNote(other->second.getLoc()) << "the other one";
      return error;
    }
    if (failed(verifyReduced(update,
                             symbols.lookup<BucketOp>(update.getTarget()))))
      return failure();
  }
  if (updated.empty())
    return success();
  for (auto bucket : graph->getParentOfType<ModuleOp>().getOps<BucketOp>())
    if (bucket.getOptimizerAttr() &&
        !updated.contains(FlatSymbolRefAttr::get(bucket.getSymNameAttr())))
      return bucket.emitOpError("expected an update, got none");
  return success();
}

namespace {
struct VerifyScheduled
    : public piper::impl::VerifyScheduledBase<VerifyScheduled> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    for (auto graph : module.getOps<GraphOp>())
      if (failed(verify(graph, symbols)))
        return signalPassFailure();
    for (auto strategy :
         llvm::make_early_inc_range(module.getOps<StrategyOp>()))
      strategy.erase();
    module->setAttr("piper.phase", StringAttr::get(&getContext(), "scheduled"));
  }

  static LogicalResult verify(GraphOp graph, const SymbolTable &symbols) {
    for (Operation &op : graph.getBody().front())
      if (failed(verifyPhase(op, symbols)))
        return failure();
    if (failed(verifyMessages(graph)) || failed(proveNoDeadlock(graph)))
      return failure();
    return verifyGradients(graph, symbols);
  }
};
} // namespace
