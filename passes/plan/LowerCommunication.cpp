// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- LowerCommunication.cpp - transfers, collectives, updates -----------===//

#include "mlir/Support/DebugStringHelper.h"
#include "passes/plan/DataFlow.h"
#include "passes/plan/GraphLowering.h"
#include "passes/plan/Sizes.h"

using namespace mlir;
using namespace piper;

/// The bucket whose gradients `value` is, if it is a bucket's flat vector.
static FlatSymbolRefAttr getPackedBucket(Value value) {
  auto pack = value.getDefiningOp<PackOp>();
  return pack ? pack.getBucketAttr() : FlatSymbolRefAttr();
}

/// `all_reduce bucket0`.
static std::string getOperandLabel(Operation *op, Value operand) {
  std::string label = op->getName().stripDialect().str();
  if (FlatSymbolRefAttr bucket = getPackedBucket(operand))
    label += (" " + bucket.getValue()).str();
  else if (auto read = operand.getDefiningOp<ReadOp>())
    label += (" " + read.getSource()).str();
  else if (auto update = operand.getDefiningOp<UpdateOp>())
    label += (" " + update.getTarget()).str();
  return label;
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// `send F stage=0 MB=1`, after the node that makes the value.
static std::string getMessageLabel(StringRef verb, SendOp send) {
  if (auto node = send.getOperand().getDefiningOp<ComputeOp>())
    return (verb + " " + piper::getLabel(node)).str();
  return verb.str();
}

/// What this rank sends, or puts into a collective to which each member has to
/// bring its part.
template <typename OpT>
FailureOr<Held> GraphLowering::resolveShared(OpT op, RankView &view,
                                             const ActionSite &site) {
  std::optional<Held> source =
      resolve(op.getOperand(), view, site, op.getRanksAttr());
  if (!source)
    return op.emitOpError("expected the operand on rank ")
           << view.getFirstRank() << ", which does not have it";
  return *source;
}

LogicalResult GraphLowering::lowerSend(SendOp op, RankView &view) {
  ActionSite site = getSite(op);
  site.label = getMessageLabel("send", op);
  FailureOr<Held> held = resolveShared(op, view, site);
  if (failed(held))
    return failure();
  if (held->bytes == 0)
    return success();
  if (held->address.getSpace() == AddressSpace::input)
    return op.emitOpError("expected a value other than an input, which every "
                          "rank has");
  view.emit<PlanSendOp>(site, held->address, held->bytes, channels.lookup(op));
  return success();
}

LogicalResult GraphLowering::lowerRecv(RecvOp op, RankView &view) {
  auto send = op.getMessage().getDefiningOp<SendOp>();
  ArrayRef<int64_t> ranks = *op.getRanks();
  int64_t position = llvm::find(ranks, view.getFirstRank()) - ranks.begin();
  int64_t sender = (*send.getRanks())[position];
  RankView &source = views[context.classes.getClassOf(sender)];
  ActionSite site = getSite(op);
  site.label = getMessageLabel("recv", send);
  // What the sender holds has the shape that the receiver gets.
  auto sent = source.values.find(send.getOperand());
  Held held;
  if (sent != source.values.end())
    held = sent->second;
  else if (auto type = dyn_cast<RankedTensorType>(op.getResult().getType());
           type && type.hasStaticShape())
    held.bytes = getBytes(type);
  else
    return op.emitOpError("expected a value that rank ")
           << sender << " has sent before";
  if (held.bytes == 0) {
    produce(op.getResult(), held, view, site);
    return success();
  }
  held.address = getResultHome(
      cast<OpResult>(op.getResult()), held.bytes,
      isa<BundleType>(op.getResult().getType()) ? "saved" : "communication",
      view, site);
  auto action = view.emit<PlanRecvOp>(site, held.address, held.bytes,
                                      channels.lookup(send));
  action->setAttr(kSourcesAttr,
                  view.builder.getDenseI64ArrayAttr({positions.lookup(send)}));
  produce(op.getResult(), held, view, site);
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

LogicalResult GraphLowering::lowerAllReduce(AllReduceOp op, RankView &view) {
  ActionSite site = getSite(op);
  site.label = getOperandLabel(op, op.getOperand());
  RankedTensorType type = op.getResult().getType();
  std::optional<Held> source =
      resolve(op.getOperand(), view, site, op.getRanksAttr());
  if (!source) { // a rank without a contribution adds zero
    source = Held{view.createBuffer(op.getLoc(), getBytes(type),
                                    "communication", site.label),
                  getBytes(type),
                  {}};
    view.emit<FillZeroOp>(site, source->address, source->bytes);
  }
  if (op.getRanks()->size() == 1) {
    produce(op.getResult(), *source, view, site);
    return success();
  }
  // In place, unless somebody else reads what this rank had.
  Held target = *source;
  if (!op.getOperand().hasOneUse())
    target.address = view.createBuffer(op.getLoc(), source->bytes,
                                       "communication", site.label);
  FlatSymbolRefAttr bucket = getPackedBucket(op.getOperand());
  BucketStorage *storage = bucket ? view.getLayout().lookup(bucket) : nullptr;
  if (storage && storage->gradients >= 0)
    site.when = view.builder.getStringAttr("reduce");
  view.emit<PlanAllReduceOp>(site, op.getReduction(), source->address,
                             target.address, type.getElementType(),
                             type.getNumElements(),
                             context.communicators.getForGroup(
                                 op.getLoc(), op.getRanksAttr(), site.stream));
  produce(op.getResult(), target, view, site);
  return success();
}

LogicalResult GraphLowering::lowerReduceScatter(ReduceScatterOp op,
                                                RankView &view) {
  ActionSite site = getSite(op);
  site.label = getOperandLabel(op, op.getOperand());
  RankedTensorType type = op.getResult().getType();
  FailureOr<Held> source = resolveShared(op, view, site);
  if (failed(source))
    return failure();
  if (op.getRanks()->size() == 1) {
    produce(op.getResult(), *source, view, site);
    return success();
  }
  FlatSymbolRefAttr bucket = getPackedBucket(op.getOperand());
  BucketStorage *storage = bucket ? view.getLayout().lookup(bucket) : nullptr;
  bool persistent = storage && storage->gradients >= 0;
  int64_t bytes = getBytes(type);
  Held shard{{}, bytes, {}};
  if (storage && storage->gradientShard >= 0)
    shard.address =
        view.getAddress(AddressSpace::state, storage->gradientShard);
  // Sums that outlive the run stay as they are; others are reduced in place.
  AddressAttr target;
  if (persistent && shard.address)
    target = shard.address;
  else if (storage && source->address.getSpace() == AddressSpace::buffer)
    target =
        view.atPosition(source->address, op.getRanksAttr(), bytes, op.getLoc());
  else
    target = view.createBuffer(op.getLoc(), bytes, "communication", site.label);
  ActionSite reduction = site;
  if (persistent)
    reduction.when = view.builder.getStringAttr("reduce");
  view.emit<PlanReduceScatterOp>(
      reduction, op.getReduction(), source->address, target,
      type.getElementType(), type.getNumElements(),
      context.communicators.getForGroup(op.getLoc(), op.getRanksAttr(),
                                        site.stream));
  if (!shard.address) {
    shard.address = target;
  } else if (!persistent) {
    site.label =
        "accumulate" + StringRef(site.label).ltrim("reduce_scatter").str();
    view.emit<PlanAccumulateOp>(site, StringRef("fresh"), shard.address, target,
                                type.getElementType(), type.getNumElements());
  }
  produce(op.getResult(), shard, view, site);
  return success();
}

LogicalResult GraphLowering::lowerAllGather(AllGatherOp op, RankView &view) {
  ActionSite site = getSite(op);
  site.label = getOperandLabel(op, op.getOperand());
  RankedTensorType type = op.getOperand().getType();
  FailureOr<Held> source = resolveShared(op, view, site);
  if (failed(source))
    return failure();
  if (op.getRanks()->size() == 1) {
    produce(op.getResult(), *source, view, site);
    return success();
  }
  Held whole{{}, getBytes(op.getResult().getType()), {}};
  // Updated parameters are gathered where they lie.
  auto update = op.getOperand().getDefiningOp<UpdateOp>();
  BucketStorage *storage =
      update ? view.getLayout().lookup(update.getTargetAttr()) : nullptr;
  if (storage && !storage->bucket.getShardParams()) {
    whole.address = view.getAddress(AddressSpace::state, storage->parameters);
    site.when = view.builder.getStringAttr("update");
  } else {
    whole.address = view.createBuffer(
        op.getLoc(), whole.bytes,
        op.getOperand().getDefiningOp<ReadOp>() ? "parameter" : "communication",
        site.label);
  }
  view.emit<PlanAllGatherOp>(site, source->address, whole.address,
                             type.getElementType(), type.getNumElements(),
                             context.communicators.getForGroup(
                                 op.getLoc(), op.getRanksAttr(), site.stream));
  produce(op.getResult(), whole, view, site);
  return success();
}

LogicalResult GraphLowering::lowerBroadcast(BroadcastOp op, RankView &view) {
  ActionSite site = getSite(op);
  site.label = getOperandLabel(op, op.getOperand());
  RankedTensorType type = op.getResult().getType();
  std::optional<Held> source =
      resolve(op.getOperand(), view, site, op.getRanksAttr());
  Held target{view.createBuffer(op.getLoc(), getBytes(type), "communication",
                                site.label),
              getBytes(type),
              {}};
  view.emit<PlanBroadcastOp>(
      site, int64_t(op.getRoot()), source ? source->address : target.address,
      target.address, type.getElementType(), type.getNumElements(),
      context.communicators.getForGroup(op.getLoc(), op.getRanksAttr(),
                                        site.stream));
  produce(op.getResult(), target, view, site);
  return success();
}

LogicalResult GraphLowering::lowerAllToAll(AllToAllOp op, RankView &view) {
  ActionSite site = getSite(op);
  site.label = getOperandLabel(op, op.getOperand());
  FailureOr<Held> source = resolveShared(op, view, site);
  if (failed(source))
    return failure();
  Type type = op.getResult().getType().getElementType();
  int64_t members = op.getRanks()->size();
  Held target{view.createBuffer(op.getLoc(), source->bytes, "communication",
                                site.label),
              source->bytes,
              {}};
  view.emit<PlanAllToAllOp>(site, source->address, target.address, type,
                            source->bytes / members / getElementBytes(type),
                            context.communicators.getForGroup(
                                op.getLoc(), op.getRanksAttr(), site.stream));
  produce(op.getResult(), target, view, site);
  return success();
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

LogicalResult GraphLowering::lowerUpdate(UpdateOp op, RankView &view) {
  BucketStorage *storage = view.getLayout().lookup(op.getTargetAttr());
  auto optimizer =
      context.symbols.lookup<OptimizerOp>(op.getOptimizerAttr().getAttr());
  if (!storage || !optimizer || !op.getScale())
    return op.emitOpError("expected a bucket of rank ")
           << view.getFirstRank() << ", an optimizer and a scale";
  ActionSite site = getSite(op);
  site.label = "update " + op.getTarget().str();
  std::optional<Held> gradient =
      resolve(op.getGradient(), view, site, op.getRanksAttr());
  std::optional<Held> scale =
      resolve(op.getScale(), view, site, op.getRanksAttr());
  if (!gradient || !scale)
    return op.emitOpError("expected gradient and scale on rank ")
           << view.getFirstRank() << ", which does not have them";

  // The scale covers every run since gradients were started afresh.
  AddressAttr total =
      view.getAddress(AddressSpace::state, view.getLayout().getScale());
  if (view.scales.insert(op.getScale()).second) {
    ActionSite addition = site;
    addition.label = "accumulate scale";
    view.emit<PlanAccumulateOp>(addition, StringRef("fresh"), total,
                                scale->address, Type(view.builder.getF32Type()),
                                int64_t(2));
  }

  int64_t elements = storage->getUpdatedElements();
  int64_t bytes = elements * getElementBytes(storage->elementType);
  AddressAttr parameters =
      view.getAddress(AddressSpace::state, storage->parameters);
  BucketOp bucket = storage->bucket;
  if (bucket.getShardOptimizer() && !bucket.getShardParams())
    parameters =
        view.atPosition(parameters, bucket.getRanksAttr(), bytes, op.getLoc());
  SmallVector<Attribute> pointers{parameters, gradient->address};
  SmallVector<int64_t> sizes{bytes, bytes};
  std::string access = "xr";
  for (int64_t slot : storage->slots) {
    pointers.push_back(view.getAddress(AddressSpace::state, slot));
    sizes.push_back(bytes);
    access += 'x';
  }
  pointers.push_back(view.getAddress(
      AddressSpace::scalar,
      context.scalarOffsets.lookup(optimizer.getSymNameAttr())));
  pointers.push_back(total);
  sizes.append({int64_t(optimizer.getScalars().size() * sizeof(float)),
                int64_t(2 * sizeof(float))});
  access += "rr";

  std::string name = ("update_" + optimizer.getRule() + "_" +
                      optimizer.getSymName() + "_" + Twine(elements))
                         .str();
  if (!storage->elementType.isF32())
    name += "_" + mlir::debugString(storage->elementType);
  if (context.kernels.insert(name).second) {
    auto kernel =
        KernelOp::create(context.builder, op.getLoc(), name, sizes, access, 0);
    // For the pass that writes the function.
    kernel->setAttr("optimizer", op.getOptimizerAttr());
    kernel->setAttr("type", TypeAttr::get(storage->elementType));
  }
  site.when = view.builder.getStringAttr("update");
  view.emit<LaunchOp>(site, view.builder.getStringAttr(name),
                      view.builder.getArrayAttr(pointers));
  view.values[op.getUpdated()] = Held{parameters, bytes, {}};
  return success();
}

LogicalResult GraphLowering::lowerWrite(WriteOp op, RankView &view) {
  BucketStorage *storage = view.getLayout().lookup(op.getTargetAttr());
  if (!storage || !isMadeHere(op.getValue(), view))
    return success();
  ActionSite site = getSite(op);
  std::optional<Held> held =
      resolve(op.getValue(), view, site, storage->bucket.getRanksAttr());
  AddressAttr target =
      view.getAddress(AddressSpace::state, storage->parameters);
  if (!held || held->address == target)
    return success();
  site.label = "write " + op.getTarget().str();
  site.when = view.builder.getStringAttr("buffers");
  view.emit<CopyOp>(site, target, held->address, held->bytes);
  return success();
}
