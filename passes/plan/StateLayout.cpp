// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- StateLayout.cpp - persistent memory of a class ---------------------===//

#include "passes/plan/StateLayout.h"
#include "passes/plan/Sizes.h"

using namespace mlir;
using namespace piper;

std::optional<int64_t> BucketStorage::getOffset(FlatSymbolRefAttr state) {
  for (auto [name, offset] : llvm::zip(bucket.getStates(), bucket.getOffsets()))
    if (name == state)
      return offset;
  return std::nullopt;
}

int64_t StateLayout::reserve(int64_t size) {
  int64_t offset = bytes;
  bytes += alignBytes(size);
  return offset;
}

StateLayout::StateLayout(ModuleOp module, ArrayRef<int64_t> ranks) {
  SymbolTable symbols(module);
  scale = reserve(2 * sizeof(float));
  for (auto bucket : module.getOps<BucketOp>()) {
    if (!llvm::is_contained(bucket.getRanks(), ranks.front()))
      continue;
    BucketStorage storage;
    storage.bucket = bucket;
    auto first = cast<FlatSymbolRefAttr>(bucket.getStates()[0]);
    storage.elementType = symbols.lookup<StateOp>(first.getAttr())
                              .getTensorType()
                              .getElementType();
    int64_t width = getElementBytes(storage.elementType);
    int64_t whole = bucket.getPadded() * width;
    int64_t shard = bucket.getShardElements() * width;
    storage.parameters = reserve(bucket.getShardParams() ? shard : whole);
    if (bucket.getOptimizer()) {
      if (!bucket.getShardGrads() || !storage.isReplicated())
        storage.gradients = reserve(whole);
      if (bucket.getShardOptimizer() && storage.isReplicated())
        storage.gradientShard = reserve(shard);
      auto optimizer =
          symbols.lookup<OptimizerOp>(bucket.getOptimizerAttr().getAttr());
      for (unsigned i = 0, e = optimizer.getSlots().size(); i < e; ++i)
        storage.slots.push_back(
            reserve(bucket.getShardOptimizer() ? shard : whole));
    }
    buckets.insert({bucket.getSymNameAttr(), storage});
  }
}

namespace {
/// Collects the segments of all states, then writes them in module order.
class StateWriter {
public:
  StateWriter(ModuleOp module, OpBuilder &builder, Communicators &communicators)
      : module(module), builder(builder), communicators(communicators),
        symbols(module) {}

  void addClass(FlatSymbolRefAttr name, StateLayout &layout);
  void addUnread(FlatSymbolRefAttr name, StateLayout &layout);
  void write();

private:
  using Key = std::pair<StringAttr, StringAttr>; // state, slot or ""
  void addSegment(StringAttr state, StringRef slot, FlatSymbolRefAttr rankClass,
                  BucketStorage &storage, int64_t offset, int64_t at,
                  bool sharded);
  void writeOne(StateOp state, StringRef slot, PlanStateKind kind);

  ModuleOp module;
  OpBuilder &builder;
  Communicators &communicators;
  SymbolTable symbols;
  llvm::DenseMap<Key, SmallVector<Attribute>> segments;
};
} // namespace

void StateWriter::addSegment(StringAttr state, StringRef slot,
                             FlatSymbolRefAttr rankClass,
                             BucketStorage &storage, int64_t offset, int64_t at,
                             bool sharded) {
  int64_t width = getElementBytes(storage.elementType);
  int64_t count =
      symbols.lookup<StateOp>(state).getTensorType().getNumElements();
  if (count == 0)
    return;
  SegmentAttr segment;
  if (sharded && storage.isReplicated()) {
    int64_t shard = storage.bucket.getShardElements();
    segment = SegmentAttr::get(
        builder.getContext(), rankClass, AddressSpace::state, at, -offset,
        shard,
        communicators.getForPositions(storage.bucket.getLoc(),
                                      storage.bucket.getRanksAttr()),
        shard, 1, 0);
  } else {
    segment =
        SegmentAttr::get(builder.getContext(), rankClass, AddressSpace::state,
                         at + offset * width, 0, count, {}, 0, 1, 0);
  }
  segments[{state, builder.getStringAttr(slot)}].push_back(segment);
}

void StateWriter::addClass(FlatSymbolRefAttr name, StateLayout &layout) {
  for (auto &[symbol, storage] : layout.buckets) {
    BucketOp bucket = storage.bucket;
    for (auto [i, ref] : llvm::enumerate(bucket.getStates())) {
      StringAttr state = cast<FlatSymbolRefAttr>(ref).getAttr();
      auto add = [&](StringRef slot, int64_t at, bool sharded) {
        addSegment(state, slot, name, storage, bucket.getOffsets()[i], at,
                   sharded);
      };
      add("", storage.parameters, bucket.getShardParams());
      if (!bucket.getOptimizer())
        continue;
      if (storage.gradientShard >= 0)
        add("grad", storage.gradientShard, true);
      else
        add("grad", storage.gradients, false);
      auto optimizer =
          symbols.lookup<OptimizerOp>(bucket.getOptimizerAttr().getAttr());
      for (auto [slot, at] : llvm::zip(optimizer.getSlots(), storage.slots))
        add(cast<StringAttr>(slot), at, bucket.getShardOptimizer());
    }
  }
}

void StateWriter::addUnread(FlatSymbolRefAttr name, StateLayout &layout) {
  for (auto state : module.getOps<StateOp>()) {
    auto &found = segments[{state.getSymNameAttr(), builder.getStringAttr("")}];
    if (!found.empty())
      continue;
    RankedTensorType type = state.getTensorType();
    if (type.getNumElements() == 0)
      continue;
    found.push_back(SegmentAttr::get(
        builder.getContext(), name, AddressSpace::state,
        layout.reserve(getBytes(type)), 0, type.getNumElements(), {}, 0, 1, 0));
  }
}

void StateWriter::writeOne(StateOp state, StringRef slot, PlanStateKind kind) {
  auto found =
      segments.find({state.getSymNameAttr(), builder.getStringAttr(slot)});
  if (found == segments.end())
    return;
  std::string name = state.getSymName().str();
  if (!slot.empty())
    name += (":" + slot).str();
  PlanStateOp::create(builder, state.getLoc(), name, kind,
                      state.getTensorType(),
                      builder.getArrayAttr(found->second));
}

void StateWriter::write() {
  SmallVector<StringAttr> slots;
  for (auto optimizer : module.getOps<OptimizerOp>())
    for (Attribute slot : optimizer.getSlots())
      if (!llvm::is_contained(slots, slot))
        slots.push_back(cast<StringAttr>(slot));
  for (auto state : module.getOps<StateOp>()) {
    PlanStateKind kind = PlanStateKind::parameter;
    if (state.getKind() == StateKind::buffer)
      kind = PlanStateKind::buffer;
    else if (state.getKind() == StateKind::constant)
      kind = PlanStateKind::constant;
    writeOne(state, "", kind);
    writeOne(state, "grad", PlanStateKind::gradient);
    for (StringAttr slot : slots)
      writeOne(state, slot, PlanStateKind::moment);
  }
}

void piper::createStates(ModuleOp module, OpBuilder &builder,
                         Communicators &communicators,
                         MutableArrayRef<StateLayout> layouts,
                         ArrayRef<FlatSymbolRefAttr> classNames) {
  StateWriter writer(module, builder, communicators);
  for (auto [name, layout] : llvm::zip(classNames, layouts))
    writer.addClass(name, layout);
  writer.addUnread(classNames.front(), layouts.front());
  writer.write();
}
