// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Values.cpp - where a class holds the values of a graph -------------===//

#include "passes/plan/GraphLowering.h"
#include "passes/plan/Sizes.h"

using namespace mlir;
using namespace piper;

bool GraphLowering::isHere(DenseI64ArrayAttr group, RankView &view) {
  return llvm::is_contained(group.asArrayRef(), view.getFirstRank());
}

/// Whether the class takes part in the operation that makes `value`.
bool GraphLowering::isMadeHere(Value value, RankView &view) {
  auto maker = value.getDefiningOp<SchedulableOpInterface>();
  return !maker || !maker.getRanksAttr() || isHere(maker.getRanksAttr(), view);
}

std::optional<Held> GraphLowering::resolveInput(InputOp op, RankView &view,
                                                DenseI64ArrayAttr group) {
  int64_t width = getElementBytes(op.getResult().getType().getElementType());
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  AddressAttr base = view.getAddress(AddressSpace::input, 0, op.getIndex());
  if (!op.getSplit()) {
    int64_t bytes = width;
    for (int64_t extent : shape)
      bytes *= extent;
    return Held{base, bytes, {}};
  }
  int64_t rowBytes = width;
  for (int64_t extent : shape.drop_front())
    rowBytes *= extent;
  ArrayRef<int64_t> ranks = group.asArrayRef();
  int64_t position = llvm::find(ranks, view.getFirstRank()) - ranks.begin();
  Rows replica = splitRows(graph.getRows(), ranks.size(), position);
  Rows part =
      splitRows(replica.size, op.getNumMicrobatches(), op.getMicrobatch());
  // All replicas of the class have as many rows, so theirs begin at equal
  // distances.
  int64_t first = replica.begin - position * replica.size + part.begin;
  return Held{view.atPosition(base.advance(first * rowBytes), group,
                              replica.size * rowBytes, op.getLoc()),
              part.size * rowBytes,
              {}};
}

std::optional<Held> GraphLowering::resolveUnpack(UnpackOp op, RankView &view,
                                                 const ActionSite &site,
                                                 DenseI64ArrayAttr group) {
  std::optional<Held> flat = resolve(op.getFlat(), view, site, group);
  BucketStorage *storage = view.getLayout().lookup(op.getBucketAttr());
  if (!flat || !storage)
    return std::nullopt;
  std::optional<int64_t> offset = storage->getOffset(op.getStateAttr());
  if (!offset)
    return std::nullopt;
  int64_t width = getElementBytes(storage->elementType);
  return Held{flat->address.advance(*offset * width),
              getBytes(op.getResult().getType()),
              {}};
}

std::optional<Held> GraphLowering::resolve(Value value, RankView &view,
                                           const ActionSite &site,
                                           DenseI64ArrayAttr group) {
  auto found = view.values.find(value);
  if (found != view.values.end())
    return found->second;
  Operation *op = value.getDefiningOp();
  if (auto input = dyn_cast<InputOp>(op))
    return resolveInput(input, view, group);
  if (auto read = dyn_cast<ReadOp>(op)) {
    BucketStorage *storage = view.getLayout().lookup(read.getSourceAttr());
    if (!storage)
      return std::nullopt;
    return Held{view.getAddress(AddressSpace::state, storage->parameters),
                getBytes(read.getResult().getType()),
                {}};
  }
  if (auto unpack = dyn_cast<UnpackOp>(op))
    return resolveUnpack(unpack, view, site, group);
  if (auto pack = dyn_cast<PackOp>(op)) {
    Held held = packValue(pack, view, site, group);
    view.values[value] = held;
    return held;
  }
  if (auto sum = dyn_cast<AccumulateOp>(op)) {
    if (!isMadeHere(value, view))
      return std::nullopt;
    Accumulator &accumulator = getAccumulator(sum, view);
    if (accumulator.contributions.empty())
      view.emit<FillZeroOp>(site, accumulator.home.address,
                            accumulator.home.bytes);
    view.values[value] = accumulator.home;
    return accumulator.home;
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Flat vectors
//===----------------------------------------------------------------------===//

/// Whether the host reads `value` after the run, maybe reduced in place.
static bool flowsToReturn(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    auto reduce = dyn_cast<AllReduceOp>(user);
    return isa<ReturnOp>(user) || (reduce && flowsToReturn(reduce.getResult()));
  });
}

Held GraphLowering::getFlat(PackOp op, RankView &view) {
  auto [it, isNew] = view.flats.try_emplace(op);
  if (!isNew)
    return it->second;
  Held flat;
  flat.bytes = getBytes(op.getResult().getType());
  BucketStorage *storage = op.getBucketAttr()
                               ? view.getLayout().lookup(op.getBucketAttr())
                               : nullptr;
  if (storage && storage->gradients >= 0)
    flat.address = view.getAddress(AddressSpace::state, storage->gradients);
  else if (flowsToReturn(op.getResult()))
    flat.address = view.getAddress(AddressSpace::scalar, context.lossOffset);
  else
    flat.address = view.createBuffer(
        op.getLoc(), flat.bytes, op.getBucketAttr() ? "gradient" : "activation",
        op.getBucketAttr() ? op.getBucketAttr().getValue() : "pack");
  return view.flats[op] = flat;
}

/// The slot of a flat vector that a sum is part of, if it is.
std::optional<Held> GraphLowering::getPartHome(AccumulateOp op,
                                               RankView &view) {
  for (Operation *user : op.getResult().getUsers()) {
    auto pack = dyn_cast<PackOp>(user);
    if (!pack || (pack.getRanksAttr() && !isHere(pack.getRanksAttr(), view)))
      continue;
    Held home = getFlat(pack, view);
    home.bytes = getBytes(op.getResult().getType());
    if (!pack.getBucketAttr()) {
      int64_t index = llvm::find(pack.getParts(), op.getResult()).getIndex();
      home.address = home.address.advance(pack.getSlot(index) * home.bytes);
      return home;
    }
    BucketStorage *storage = view.getLayout().lookup(pack.getBucketAttr());
    std::optional<int64_t> offset =
        storage ? storage->getOffset(op.getStateAttr()) : std::nullopt;
    if (!offset)
      continue;
    home.address =
        home.address.advance(*offset * getElementBytes(storage->elementType));
    return home;
  }
  return std::nullopt;
}

/// Zeroes what no contribution of this rank covers. In memory that outlives the
/// run the gaps between states stay zero by themselves; a state without
/// contributions holds what the others' sum was last time.
void GraphLowering::fillMissing(
    PackOp op, RankView &view, const ActionSite &site,
    SmallVector<std::pair<int64_t, int64_t>> covered) {
  Held flat = getFlat(op, view);
  BucketStorage *storage = op.getBucketAttr()
                               ? view.getLayout().lookup(op.getBucketAttr())
                               : nullptr;
  if (storage && storage->gradients >= 0) {
    int64_t width = getElementBytes(storage->elementType);
    BucketOp bucket = storage->bucket;
    // Treat the gaps as covered.
    int64_t end = 0;
    for (auto [state, offset] :
         llvm::zip(bucket.getStates(), bucket.getOffsets())) {
      covered.push_back({end, offset * width});
      auto name = cast<FlatSymbolRefAttr>(state).getAttr();
      auto type = context.symbols.lookup<StateOp>(name).getTensorType();
      end = offset * width + getBytes(type);
    }
    covered.push_back({end, flat.bytes});
  }
  llvm::sort(covered);
  covered.push_back({flat.bytes, flat.bytes});
  int64_t end = 0;
  for (auto [begin, next] : covered) {
    if (begin > end)
      view.emit<FillZeroOp>(site, flat.address.advance(end), begin - end);
    end = std::max(end, next);
  }
}

Held GraphLowering::packValue(PackOp op, RankView &view, const ActionSite &site,
                              DenseI64ArrayAttr group) {
  Held flat = getFlat(op, view);
  SmallVector<std::pair<int64_t, int64_t>> covered;
  bool takesPart = !op.getRanksAttr() || isHere(op.getRanksAttr(), view);
  for (auto [i, part] : llvm::enumerate(op.getParts())) {
    int64_t bytes = getBytes(cast<RankedTensorType>(part.getType()));
    int64_t offset = op.getSlot(i) * bytes;
    if (op.getBucketAttr()) {
      BucketStorage *storage = view.getLayout().lookup(op.getBucketAttr());
      auto state = cast<FlatSymbolRefAttr>((*op.getStates())[i]);
      std::optional<int64_t> found =
          storage ? storage->getOffset(state) : std::nullopt;
      if (!found)
        continue;
      offset = *found * getElementBytes(storage->elementType);
    }
    if (!takesPart || !isMadeHere(part, view))
      continue;
    auto sum = part.getDefiningOp<AccumulateOp>();
    if (sum && getAccumulator(sum, view).contributions.empty())
      continue;
    std::optional<Held> held = resolve(part, view, site, group);
    if (!held)
      continue;
    AddressAttr slot = flat.address.advance(offset);
    if (held->address != slot)
      view.emit<CopyOp>(site, slot, held->address, bytes);
    covered.push_back({offset, offset + bytes});
  }
  fillMissing(op, view, site, std::move(covered));
  return flat;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Accumulator &GraphLowering::getAccumulator(AccumulateOp op, RankView &view) {
  auto found = view.accumulators.find(op);
  if (found != view.accumulators.end())
    return found->second;
  Accumulator sum;
  RankedTensorType type = op.getResult().getType();
  sum.elementType = type.getElementType();
  sum.stream = op.getStreamAttr() ? op.getStreamAttr() : computeStream;
  sum.label =
      op.getState() ? "accumulate " + op.getState()->str() : "accumulate";
  for (Value contribution : op.getContributions())
    if (isMadeHere(contribution, view))
      sum.contributions.push_back(contribution);
  if (std::optional<Held> part = getPartHome(op, view))
    sum.home = *part;
  else
    sum.home = Held{
        view.createBuffer(op.getLoc(), getBytes(type), "gradient", sum.label),
        getBytes(type),
        {}};
  sum.firstMode =
      sum.home.address.getSpace() == AddressSpace::state ? "fresh" : "write";
  return view.accumulators.try_emplace(op, std::move(sum)).first->second;
}

/// The sum that begins with `result`, if nobody else reads the result.
Accumulator *GraphLowering::getSumThatBegins(OpResult result, RankView &view) {
  if (!result.hasOneUse())
    return nullptr;
  auto op = dyn_cast<AccumulateOp>(*result.user_begin());
  if (!op || !isMadeHere(op.getResult(), view))
    return nullptr;
  Accumulator &sum = getAccumulator(op, view);
  return !sum.contributions.empty() && sum.contributions.front() == result
             ? &sum
             : nullptr;
}

/// Where a node writes a result: straight into the sum that it begins, if
/// nothing can be there yet; else a buffer of its own.
AddressAttr GraphLowering::getResultHome(OpResult result, int64_t bytes,
                                         StringRef kind, RankView &view,
                                         const ActionSite &site) {
  Accumulator *sum = getSumThatBegins(result, view);
  if (sum && sum->firstMode == "write")
    return sum->home.address;
  return view.createBuffer(result.getLoc(), bytes, kind, site.label);
}

/// `value` is there: adds it to the sums whose turn it is.
void GraphLowering::produce(Value value, Held held, RankView &view,
                            const ActionSite &site) {
  view.values[value] = held;
  SmallVector<AccumulateOp> sums;
  for (Operation *user : value.getUsers())
    if (auto sum = dyn_cast<AccumulateOp>(user))
      if (isMadeHere(sum.getResult(), view) && !llvm::is_contained(sums, sum))
        sums.push_back(sum);
  llvm::sort(sums, [&](AccumulateOp a, AccumulateOp b) {
    return positions.lookup(a) < positions.lookup(b);
  });
  for (AccumulateOp op : sums) {
    Accumulator &sum = getAccumulator(op, view);
    while (sum.added < sum.contributions.size()) {
      auto next = view.values.find(sum.contributions[sum.added]);
      if (next == view.values.end())
        break;
      bool isFirst = sum.added++ == 0;
      if (next->second.address == sum.home.address) // written in place
        continue;
      ActionSite addition{
          op.getLoc(), sum.stream, {}, sum.label, site.position};
      StringRef mode = isFirst ? sum.firstMode : "add";
      if (view.writtenIfFresh.contains(next->first)) {
        mode = "add";
        addition.when = view.builder.getStringAttr("!fresh");
      }
      view.emit<PlanAccumulateOp>(
          addition, mode, sum.home.address, next->second.address,
          sum.elementType, sum.home.bytes / getElementBytes(sum.elementType));
    }
  }
}
