// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Replicate.cpp - data parallelism and ZeRO --------------------------===//
//
// Puts states in buckets, then rewrites what the graphs do with states into
// what they do with buckets: reads (gathered where parameters are sharded),
// reductions of gradients, updates, and the sum of losses and weights over all
// ranks. Each contribution is reduced once per step.
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Builders.h"
#include "passes/Passes.h"
#include "passes/directives/Buckets.h"
#include "passes/directives/Groups.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"

namespace piper {
#define GEN_PASS_DEF_REPLICATE
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

namespace {
class GraphRewriter {
public:
  GraphRewriter(GraphOp graph, const SymbolTable &symbols,
                const StateUses &uses, const Buckets &buckets)
      : graph(graph), body(graph.getBody().front()),
        module(graph->getParentOfType<ModuleOp>()), symbols(symbols),
        uses(uses), buckets(buckets), builder(graph.getContext()),
        token(builder.getType<TokenType>()),
        compute(FlatSymbolRefAttr::get(graph.getContext(), computeStream)) {}

  void run();

private:
  // Reads.
  void rewriteReads();
  Value getState(ReadOp read, ComputeOp node);
  Value getFlat(BucketOp bucket, ComputeOp node);
  Value getStored(BucketOp bucket);
  // Gradients and updates.
  void rewriteGradients();
  SmallVector<AccumulateOp> accumulateByGroup(AccumulateOp accumulate);
  void reduceAndUpdate(BucketOp bucket);
  Value reduce(BucketOp bucket, Value flat);
  void update(BucketOp bucket, Value gradient);
  void rewriteWrites();
  // Loss.
  void reduceLoss();

  RankedTensorType getFlatType(BucketOp bucket, bool isShard);

  GraphOp graph;
  Block &body;
  ModuleOp module;
  const SymbolTable &symbols;
  const StateUses &uses;
  const Buckets &buckets;
  OpBuilder builder;
  TokenType token;
  FlatSymbolRefAttr compute;
  /// What ranks keep of a bucket, read once per graph.
  llvm::DenseMap<Operation *, Value> stored;
  Value lastStored;
  /// Whole vectors and states inside them, by bucket, state and, where they are
  /// gathered, node.
  llvm::DenseMap<std::pair<Operation *, Operation *>, Value> flats;
  llvm::DenseMap<std::tuple<Operation *, Attribute, Operation *>, Value> views;
  /// Gradients of a state, one per device group that contributes.
  llvm::DenseMap<StringAttr, SmallVector<AccumulateOp>> gradients;
  /// [loss_sum, weight_sum] over all ranks.
  Value lossAndWeight;
};
} // namespace

RankedTensorType GraphRewriter::getFlatType(BucketOp bucket, bool isShard) {
  auto state = symbols.lookup<StateOp>(
      cast<FlatSymbolRefAttr>(bucket.getStates()[0]).getAttr());
  int64_t elements = isShard ? bucket.getShardElements() : bucket.getPadded();
  return RankedTensorType::get({elements},
                               state.getTensorType().getElementType());
}

Value GraphRewriter::getStored(BucketOp bucket) {
  Value &value = stored[bucket];
  if (!value) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&body);
    if (lastStored)
      builder.setInsertionPointAfterValue(lastStored);
    lastStored = value = ReadOp::create(
        builder, bucket.getLoc(), getFlatType(bucket, bucket.getShardParams()),
        FlatSymbolRefAttr::get(bucket.getSymNameAttr()));
  }
  return value;
}

Value GraphRewriter::getFlat(BucketOp bucket, ComputeOp node) {
  if (!bucket.getShardParams())
    return getStored(bucket);
  Value &value = flats[{bucket, node}];
  if (!value) {
    Value shard = getStored(bucket);
    value = AllGatherOp::create(builder, node.getLoc(),
                                getFlatType(bucket, /*isShard=*/false), token,
                                shard, ValueRange(), bucket.getRanksAttr(),
                                bucket.getGatherStreamAttr())
                .getResult();
  }
  return value;
}

Value GraphRewriter::getState(ReadOp read, ComputeOp node) {
  BucketOp bucket =
      buckets.lookup(read.getSourceAttr().getAttr(), node.getRanksAttr());
  Operation *where = bucket.getShardParams() ? node.getOperation() : nullptr;
  Value &value = views[{bucket, read.getSourceAttr(), where}];
  if (value)
    return value;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(node);
  Value flat = getFlat(bucket, node);
  if (!where)
    builder.setInsertionPointAfterValue(flat);
  value = UnpackOp::create(builder, read.getLoc(), read.getType(),
                           FlatSymbolRefAttr::get(bucket.getSymNameAttr()),
                           read.getSourceAttr(), flat);
  return value;
}

void GraphRewriter::rewriteReads() {
  for (auto node : llvm::to_vector(body.getOps<ComputeOp>()))
    for (OpOperand &operand : node->getOpOperands()) {
      auto read = operand.get().getDefiningOp<ReadOp>();
      if (read && uses.contains(read.getSourceAttr().getAttr()))
        operand.set(getState(read, node));
    }
}

/// A buffer is written on every group that holds it: where it was made, and
/// where it was received.
void GraphRewriter::rewriteWrites() {
  for (auto write : llvm::to_vector(body.getOps<WriteOp>())) {
    StringAttr state = write.getTargetAttr().getAttr();
    auto use = uses.find(state);
    if (use == uses.end())
      continue;
    llvm::DenseMap<Attribute, Value> values;
    Operation *producer = write.getValue().getDefiningOp();
    if (auto node = dyn_cast<ComputeOp>(producer))
      values[node.getRanksAttr()] = write.getValue();
    else if (isa<InputOp>(producer)) // every group has it
      for (DenseI64ArrayAttr group : use->second.groups)
        values[group] = write.getValue();
    for (Operation *user : write.getValue().getUsers())
      if (auto send = dyn_cast<SendOp>(user))
        values[send.getToAttr()] =
            cast<RecvOp>(*send.getMessage().user_begin()).getResult();
    builder.setInsertionPoint(write);
    for (DenseI64ArrayAttr group : use->second.groups)
      if (Value value = values.lookup(group))
        WriteOp::create(builder, write.getLoc(),
                        FlatSymbolRefAttr::get(
                            buckets.lookup(state, group).getSymNameAttr()),
                        value);
    write.erase();
  }
}

SmallVector<AccumulateOp>
GraphRewriter::accumulateByGroup(AccumulateOp accumulate) {
  llvm::MapVector<Attribute, SmallVector<Value>> byGroup;
  for (Value contribution : accumulate.getContributions()) {
    auto maker = contribution.getDefiningOp<SchedulableOpInterface>();
    byGroup[maker.getRanksAttr()].push_back(contribution);
  }
  builder.setInsertionPoint(accumulate);
  SmallVector<AccumulateOp> sums;
  for (auto &[group, contributions] : byGroup)
    sums.push_back(AccumulateOp::create(
        builder, accumulate.getLoc(), accumulate.getResult().getType(), token,
        accumulate.getStateAttr(), contributions, ValueRange(),
        cast<DenseI64ArrayAttr>(group), compute));
  return sums;
}

void GraphRewriter::reduceLoss() {
  auto terminator = cast<ReturnOp>(body.getTerminator());
  SmallVector<Value> parts;
  SmallVector<int64_t> slots;
  llvm::SmallSetVector<int64_t, 8> makers;
  SmallVector<Operation *> replaced;
  for (auto [slot, value] : llvm::enumerate(terminator.getValues())) {
    auto sum = value.getDefiningOp<AccumulateOp>();
    if (!sum) { // no split: a sum of one
      builder.setInsertionPoint(terminator);
      sum =
          AccumulateOp::create(builder, terminator.getLoc(), value.getType(),
                               token, FlatSymbolRefAttr(), value, ValueRange(),
                               DenseI64ArrayAttr(), FlatSymbolRefAttr());
    }
    for (AccumulateOp part : accumulateByGroup(sum)) {
      parts.push_back(part.getResult());
      slots.push_back(slot);
      makers.insert_range(*part.getRanks());
    }
    if (!llvm::is_contained(replaced, sum))
      replaced.push_back(sum);
  }
  builder.setInsertionPoint(terminator);
  Location loc = terminator.getLoc();
  auto type = RankedTensorType::get({2}, builder.getF32Type());
  lossAndWeight = PackOp::create(
      builder, loc, type, FlatSymbolRefAttr(), ArrayAttr(), parts,
      // Several groups have a part of the loss where each trains some of the
      // microbatches.
      parts.size() > 2 ? builder.getDenseI64ArrayAttr(slots)
                       : DenseI64ArrayAttr(),
      getSortedRanks(builder.getContext(), makers.getArrayRef()));
  int64_t numRanks = getNumRanks(module);
  if (numRanks > 1) {
    StringRef stream = "reduce_stream";
    for (auto directive : getDirectives<ReplicateOp>(module)) {
      stream = directive.getReduceStream();
      break;
    }
    auto all = llvm::to_vector(llvm::seq<int64_t>(0, numRanks));
    lossAndWeight =
        AllReduceOp::create(builder, loc, type, token, Reduction::sum,
                            lossAndWeight, ValueRange(),
                            builder.getDenseI64ArrayAttr(all),
                            getOrCreateStream(module, stream))
            .getResult();
  }
  terminator.getValuesMutable().assign(lossAndWeight);
  for (Operation *sum : replaced)
    sum->erase();
}

Value GraphRewriter::reduce(BucketOp bucket, Value flat) {
  if (bucket.getRanks().size() == 1)
    return flat;
  Location loc = bucket.getLoc();
  if (bucket.getShardOptimizer())
    return ReduceScatterOp::create(
               builder, loc, getFlatType(bucket, /*isShard=*/true), token,
               Reduction::sum, flat, ValueRange(), bucket.getRanksAttr(),
               bucket.getReduceStreamAttr())
        .getResult();
  return AllReduceOp::create(
             builder, loc, flat.getType(), token, Reduction::sum, flat,
             ValueRange(), bucket.getRanksAttr(), bucket.getReduceStreamAttr())
      .getResult();
}

void GraphRewriter::update(BucketOp bucket, Value gradient) {
  Location loc = bucket.getLoc();
  auto name = FlatSymbolRefAttr::get(bucket.getSymNameAttr());
  auto updated = UpdateOp::create(
      builder, loc, gradient.getType(), token, name, gradient, lossAndWeight,
      ValueRange(), bucket.getOptimizerAttr(), bucket.getRanksAttr(), compute);
  // Whole parameters are updated where they lie; of sharded moments each rank
  // has updated its part.
  if (!bucket.getShardOptimizer() || bucket.getShardParams())
    return;
  auto gathered =
      AllGatherOp::create(builder, loc, getFlatType(bucket, /*isShard=*/false),
                          token, updated.getUpdated(), ValueRange(),
                          bucket.getRanksAttr(), bucket.getGatherStreamAttr());
  WriteOp::create(builder, loc, name, gathered.getResult());
}

void GraphRewriter::reduceAndUpdate(BucketOp bucket) {
  SmallVector<Attribute> states;
  SmallVector<Value> parts;
  for (Attribute state : bucket.getStates())
    for (AccumulateOp sum :
         gradients.lookup(cast<FlatSymbolRefAttr>(state).getAttr())) {
      states.push_back(state);
      parts.push_back(sum.getResult());
    }
  if (parts.empty())
    return;
  builder.setInsertionPoint(body.getTerminator());
  Value flat = PackOp::create(builder, bucket.getLoc(),
                              getFlatType(bucket, /*isShard=*/false),
                              FlatSymbolRefAttr::get(bucket.getSymNameAttr()),
                              builder.getArrayAttr(states), parts,
                              DenseI64ArrayAttr(), bucket.getRanksAttr());
  Value gradient = reduce(bucket, flat);
  if (bucket.getOptimizerAttr())
    update(bucket, gradient);
}

void GraphRewriter::rewriteGradients() {
  for (auto update : llvm::make_early_inc_range(body.getOps<UpdateOp>()))
    update.erase();
  for (auto accumulate : llvm::to_vector(body.getOps<AccumulateOp>())) {
    if (!accumulate.getState())
      continue;
    gradients[accumulate.getStateAttr().getAttr()] =
        accumulateByGroup(accumulate);
    accumulate.erase();
  }
}

void GraphRewriter::run() {
  rewriteReads();
  rewriteWrites();
  rewriteGradients();
  reduceLoss();
  for (BucketOp bucket : buckets.getBuckets())
    reduceAndUpdate(bucket);
  for (auto read : llvm::make_early_inc_range(body.getOps<ReadOp>()))
    if (read->use_empty())
      read.erase();
}

namespace {
struct Replicate : public piper::impl::ReplicateBase<Replicate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<StateUses> uses = collectStateUses(module);
    if (failed(uses))
      return signalPassFailure();
    SymbolTable symbols(module);
    Buckets buckets(module, symbols, *uses);
    for (auto graph : module.getOps<GraphOp>())
      GraphRewriter(graph, symbols, *uses, buckets).run();
    numBuckets += buckets.getBuckets().size();
    module.walk([&](Operation *op) {
      if (isa<AllReduceOp, ReduceScatterOp, AllGatherOp>(op))
        ++numCollectives;
    });
  }
};
} // namespace
