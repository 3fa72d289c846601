// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Buckets.cpp - which states lie in one flat vector ------------------===//
//
// States that are reduced, sharded and updated alike follow each other in flat
// vectors of at most `bucket_size`: one collective then serves many parameters,
// and an update is one loop.
//
//===----------------------------------------------------------------------===//

#include "passes/directives/Buckets.h"
#include "mlir/IR/Builders.h"
#include "passes/directives/Groups.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace piper;

/// States and shards begin at multiples of a cache line of f32.
static constexpr int64_t alignment = 16;
static constexpr double defaultBucketMiB = 25.0;

namespace {
/// What a bucket does with its states.
struct Treatment {
  DenseI64ArrayAttr ranks;
  StringAttr gatherStream, reduceStream;
  bool shardParams = false, shardGrads = false, shardOptimizer = false;
  bool reduces = false;
  int64_t maxBytes = 0;
};

/// A bucket that is being filled.
struct Draft {
  Location loc;
  Treatment treatment;
  FlatSymbolRefAttr optimizer;
  SmallVector<Attribute> states;
  SmallVector<int64_t> offsets;
  int64_t elements = 0;
  /// (state, group) pairs that look this bucket up.
  SmallVector<std::pair<Attribute, Attribute>> instances;
};

class Drafts {
public:
  explicit Drafts(MLIRContext *context) : context(context) {}
  void add(const StateUse &use);
  std::vector<Draft> take() { return std::move(drafts); }

private:
  Treatment treat(const StateUse &use, ArrayRef<DenseI64ArrayAttr> groups,
                  ArrayRef<ReplicateOp> directives);
  void addInstance(const StateUse &use, ArrayRef<DenseI64ArrayAttr> groups,
                   const Treatment &treatment);
  Attribute getKey(const StateUse &use, const Treatment &treatment);

  MLIRContext *context;
  std::vector<Draft> drafts;
  /// The draft that states of a kind are going into.
  llvm::DenseMap<Attribute, size_t> current;
};
} // namespace

Treatment Drafts::treat(const StateUse &use, ArrayRef<DenseI64ArrayAttr> groups,
                        ArrayRef<ReplicateOp> directives) {
  llvm::SmallSetVector<int64_t, 8> ranks;
  for (DenseI64ArrayAttr group : groups)
    ranks.insert_range(group.asArrayRef());
  Treatment treatment;
  treatment.ranks = getSortedRanks(context, ranks.getArrayRef());
  ReplicateOp first = directives.front();
  double size =
      first ? first.getBucketSize().convertToDouble() : defaultBucketMiB;
  treatment.maxBytes = static_cast<int64_t>(size * 1024 * 1024);
  if (ranks.size() == 1)
    return treatment;
  // Tied over groups of one rank: no directive says which streams.
  treatment.reduces = use.hasGradient;
  treatment.reduceStream = StringAttr::get(context, "reduce_stream");
  treatment.gatherStream = StringAttr::get(context, "gather_stream");
  if (!first)
    return treatment;
  treatment.reduceStream = first.getReduceStreamAttr();
  treatment.gatherStream = first.getGatherStreamAttr();
  auto all = [&](auto flag) { return llvm::all_of(directives, flag); };
  // A gather between groups would hold one group up until the other comes by,
  // so parameters that several groups read stay whole.
  treatment.shardParams = groups.size() == 1 &&
                          use.getState().getKind() == StateKind::parameter &&
                          first.getShardParams();
  bool updated = use.hasGradient || treatment.shardParams;
  treatment.shardGrads =
      updated && all([](ReplicateOp op) { return op && op.getShardGrads(); });
  treatment.shardOptimizer = updated && all([](ReplicateOp op) {
                               return op && op.getShardOptimizer();
                             });
  return treatment;
}

/// States with equal keys may share a bucket.
Attribute Drafts::getKey(const StateUse &use, const Treatment &treatment) {
  Builder builder(context);
  auto orUnit = [&](Attribute attribute) {
    return attribute ? attribute : builder.getUnitAttr();
  };
  auto type = use.getState().getTensorType().getElementType();
  return builder.getArrayAttr(
      {treatment.ranks, orUnit(treatment.gatherStream),
       orUnit(treatment.reduceStream),
       builder.getBoolAttr(treatment.shardParams),
       builder.getBoolAttr(treatment.shardGrads),
       builder.getBoolAttr(treatment.shardOptimizer),
       builder.getI64IntegerAttr(treatment.maxBytes), orUnit(use.optimizer),
       builder.getBoolAttr(use.hasGradient), TypeAttr::get(type),
       builder.getI64IntegerAttr(
           static_cast<int64_t>(use.getState().getKind())),
       // A written buffer is written whole, so it has a bucket of its own.
       use.isWritten ? Attribute(use.getState().getSymNameAttr())
                     : builder.getUnitAttr(),
       // A gather serves one chunk.
       treatment.shardParams ? orUnit(use.chunk) : builder.getUnitAttr()});
}

void Drafts::addInstance(const StateUse &use,
                         ArrayRef<DenseI64ArrayAttr> groups,
                         const Treatment &treatment) {
  RankedTensorType type = use.getState().getTensorType();
  int64_t bytes = llvm::divideCeil(type.getElementType().isIntOrFloat()
                                       ? type.getElementTypeBitWidth()
                                       : 128,
                                   8);
  auto [it, isNew] = current.try_emplace(getKey(use, treatment), drafts.size());
  if (!isNew) {
    Draft &open = drafts[it->second];
    int64_t end =
        llvm::alignTo(open.elements, alignment) + type.getNumElements();
    if (end * bytes > treatment.maxBytes) {
      it->second = drafts.size();
      isNew = true;
    }
  }
  if (isNew)
    drafts.push_back(
        {use.getState().getLoc(), treatment, use.optimizer, {}, {}, 0, {}});
  Draft &draft = drafts[it->second];
  int64_t offset = llvm::alignTo(draft.elements, alignment);
  StringAttr name = use.getState().getSymNameAttr();
  draft.states.push_back(FlatSymbolRefAttr::get(name));
  draft.offsets.push_back(offset);
  draft.elements = offset + type.getNumElements();
  for (DenseI64ArrayAttr group : groups)
    draft.instances.push_back({name, group});
}

void Drafts::add(const StateUse &use) {
  if (use.groups.empty())
    return;
  if (use.hasGradient) {
    addInstance(use, use.groups, treat(use, use.groups, use.directives));
    return;
  }
  for (auto [group, directive] : llvm::zip(use.groups, use.directives))
    addInstance(use, group, treat(use, group, directive));
}

Buckets::Buckets(ModuleOp module, const SymbolTable &symbols,
                 const StateUses &uses) {
  Drafts drafts(module.getContext());
  for (const auto &[name, use] : uses)
    drafts.add(use);

  OpBuilder builder(module.getContext());
  builder.setInsertionPointToStart(module.getBody());
  for (Operation &op : *module.getBody())
    if (isa<MeshOp, StreamOp, StateOp, OptimizerOp>(op))
      builder.setInsertionPointAfter(&op);
  unsigned number = 0;
  for (Draft &draft : drafts.take()) {
    const Treatment &treatment = draft.treatment;
    int64_t numRanks = treatment.ranks.size();
    std::string name;
    do
      name = "bucket" + std::to_string(number++);
    while (symbols.lookup(name));
    auto flag = [&](bool set) {
      return set ? builder.getUnitAttr() : UnitAttr();
    };
    auto stream = [&](StringAttr stream) {
      return stream ? getOrCreateStream(module, stream) : FlatSymbolRefAttr();
    };
    auto bucket = BucketOp::create(
        builder, draft.loc, builder.getStringAttr(name),
        builder.getArrayAttr(draft.states),
        builder.getDenseI64ArrayAttr(draft.offsets),
        builder.getI64IntegerAttr(draft.elements),
        builder.getI64IntegerAttr(
            llvm::alignTo(draft.elements, numRanks * alignment)),
        treatment.ranks, draft.optimizer, flag(treatment.shardParams),
        flag(treatment.shardGrads), flag(treatment.shardOptimizer),
        stream(treatment.shardOptimizer ? treatment.gatherStream
                                        : StringAttr()),
        stream(treatment.reduces ? treatment.reduceStream : StringAttr()));
    for (auto instance : draft.instances)
      instances.insert({instance, bucket});
    buckets.push_back(bucket);
  }
}
