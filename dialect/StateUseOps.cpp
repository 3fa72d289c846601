// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- StateUseOps.cpp - read, write, sum and update of state -------------===//

#include "dialect/Verification.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

/// `tensor<length x type>`, with the element type of the bucket's states; null
/// where the bucket is broken, which its own verifier reports.
static RankedTensorType getVectorType(BucketOp bucket, int64_t length,
                                      SymbolTableCollection &symbols) {
  auto state = symbols.lookupNearestSymbolFrom<StateOp>(
      bucket, cast<FlatSymbolRefAttr>(bucket.getStates()[0]));
  if (!state)
    return {};
  return RankedTensorType::get({length},
                               state.getTensorType().getElementType());
}

/// `type` is the bucket's flat vector, or one rank's part of it.
static LogicalResult verifyVector(Operation *op, StringRef what, Type type,
                                  BucketOp bucket, bool isPart,
                                  SymbolTableCollection &symbols) {
  int64_t length = isPart ? bucket.getShardElements() : bucket.getPadded();
  RankedTensorType expected = getVectorType(bucket, length, symbols);
  if (!expected || type == expected)
    return success();
  return withNote(op->emitOpError("expected ")
                      << what << " of " << expected << ", got " << type,
                  bucket, "the bucket is here");
}

static LogicalResult verifyStateType(Operation *op, StringRef what, Type type,
                                     StateOp state) {
  if (state.getType() == type)
    return success();
  return withNote(op->emitOpError("expected ")
                      << what << " of " << state.getType() << ", got " << type,
                  state, "the state is here");
}

static LogicalResult verifyTrainable(Operation *op, StateOp state) {
  if (state.getTrainable())
    return success();
  return withNote(op->emitOpError("expected a trainable state, got ")
                      << FlatSymbolRefAttr::get(state.getSymNameAttr()),
                  state, "the state is here");
}

//===----------------------------------------------------------------------===//
// ReadOp, WriteOp
//===----------------------------------------------------------------------===//

static constexpr StringRef stateOrBucket = "piper.state or piper.bucket";

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Type type = getResult().getType();
  if (auto bucket =
          symbols.lookupNearestSymbolFrom<BucketOp>(*this, getSourceAttr()))
    return verifyVector(*this, "a value", type, bucket, bucket.getShardParams(),
                        symbols);
  auto state =
      lookupSymbol<StateOp>(*this, getSourceAttr(), symbols, stateOrBucket);
  return failure(!state ||
                 failed(verifyStateType(*this, "a value", type, state)));
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Type type = getValue().getType();
  if (auto bucket =
          symbols.lookupNearestSymbolFrom<BucketOp>(*this, getTargetAttr())) {
    if (bucket.getStates().size() == 1) {
      auto state = symbols.lookupNearestSymbolFrom<StateOp>(
          *this, cast<FlatSymbolRefAttr>(bucket.getStates()[0]));
      if (state && state.getType() == type)
        return success();
    }
    return verifyVector(*this, "a value", type, bucket, bucket.getShardParams(),
                        symbols);
  }
  auto state =
      lookupSymbol<StateOp>(*this, getTargetAttr(), symbols, stateOrBucket);
  if (!state)
    return failure();
  if (state.getKind() != StateKind::buffer)
    return withNote(emitOpError("expected a state of kind buffer, got a ")
                        << stringifyStateKind(state.getKind()),
                    state, "the state is here");
  return verifyStateType(*this, "a value", type, state);
}

//===----------------------------------------------------------------------===//
// AccumulateOp
//===----------------------------------------------------------------------===//

LogicalResult AccumulateOp::verify() {
  if (getContributions().empty())
    return emitOpError("expected at least one contribution, got none");
  for (Value contribution : getContributions())
    if (contribution.getType() != getResult().getType())
      return emitOpError("expected contributions of ")
             << getResult().getType() << ", got " << contribution.getType();
  return success();
}

LogicalResult AccumulateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifySymbol<StreamOp>(*this, getStreamAttr(), symbols)))
    return failure();
  if (getStateAttr()) {
    auto state = lookupSymbol<StateOp>(*this, getStateAttr(), symbols);
    if (!state || failed(verifyTrainable(*this, state)) ||
        failed(verifyStateType(*this, "a sum", getResult().getType(), state)))
      return failure();
  }
  for (Value contribution : getContributions())
    if (failed(verifyExecuted(*this, "a contribution", contribution)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// PackOp, UnpackOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyScalars(PackOp pack, RankedTensorType type) {
  Type scalar = RankedTensorType::get({}, type.getElementType());
  for (Value part : pack.getParts())
    if (part.getType() != scalar)
      return pack.emitOpError("expected parts of ")
             << scalar << " where no bucket is given, got " << part.getType();
  return success();
}

/// The ranks that make a part, or null where that is left open.
static Attribute getMakers(Value part) {
  auto maker = part.getDefiningOp<SchedulableOpInterface>();
  return maker ? Attribute(maker.getRanksAttr()) : Attribute();
}

static LogicalResult verifySlots(PackOp pack, RankedTensorType type) {
  ArrayRef<int64_t> slots = *pack.getSlots();
  if (type.getRank() != 1 || slots.size() != pack.getParts().size())
    return pack.emitOpError("expected a vector and one slot per part, got ")
           << type << " and " << slots.size() << " slots of "
           << pack.getParts().size() << " parts";
  llvm::DenseSet<std::pair<int64_t, Attribute>> taken;
  for (auto [slot, part] : llvm::zip(slots, pack.getParts())) {
    if (slot < 0 || slot >= type.getNumElements())
      return pack.emitOpError("expected slots from 0 to ")
             << type.getNumElements() - 1 << ", got " << slot;
    if (!taken.insert({slot, getMakers(part)}).second)
      return pack.emitOpError("expected parts of slot ")
             << slot << " from different device groups";
  }
  return verifyScalars(pack, type);
}

LogicalResult PackOp::verify() {
  size_t numParts = getParts().size();
  if (getBucket()) {
    size_t numStates = getStates() ? getStates()->size() : 0;
    if (getSlots())
      return emitOpError("expected slots only where no bucket is given");
    if (numStates != numParts)
      return emitOpError("expected one part per state, got ")
             << numParts << " parts of " << numStates << " states";
    return success();
  }
  if (getStates())
    return emitOpError("expected a bucket with states, got states alone");
  auto type = cast<RankedTensorType>(getResult().getType());
  if (getSlots())
    return verifySlots(*this, type);
  if (type.getRank() != 1 ||
      (numParts != 0 &&
       type.getNumElements() != static_cast<int64_t>(numParts)))
    return emitOpError("expected a vector of one element per part, got ")
           << type << " of " << numParts << " parts";
  return verifyScalars(*this, type);
}

/// The state that `reference` names, which the bucket holds.
static StateOp lookupStateOf(BucketOp bucket, Operation *op,
                             FlatSymbolRefAttr reference,
                             SymbolTableCollection &symbols) {
  if (bucket.getOffset(reference.getValue()))
    return lookupSymbol<StateOp>(op, reference, symbols);
  (void)withNote(op->emitOpError("expected a state of the bucket, got ")
                     << reference,
                 bucket, "the bucket is here");
  return {};
}

LogicalResult PackOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getBucketAttr())
    return success();
  auto bucket = lookupSymbol<BucketOp>(*this, getBucketAttr(), symbols);
  if (!bucket)
    return failure();
  // A state that several groups share has a part from each.
  llvm::SmallDenseSet<std::pair<Attribute, Attribute>> seen;
  for (auto [reference, part] :
       llvm::zip(getStatesAttr().getAsRange<FlatSymbolRefAttr>(), getParts())) {
    auto maker = part.getDefiningOp<SchedulableOpInterface>();
    Attribute group = maker ? maker.getRanksAttr() : DenseI64ArrayAttr();
    if (!seen.insert({reference, group}).second)
      return emitOpError("expected one part of ")
             << reference << " per device group, got a second";
    StateOp state = lookupStateOf(bucket, *this, reference, symbols);
    if (!state ||
        failed(verifyStateType(*this, "a part", part.getType(), state)))
      return failure();
  }
  return verifyVector(*this, "a result", getResult().getType(), bucket,
                      /*isPart=*/false, symbols);
}

LogicalResult UnpackOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto bucket = lookupSymbol<BucketOp>(*this, getBucketAttr(), symbols);
  if (!bucket)
    return failure();
  StateOp state = lookupStateOf(bucket, *this, getStateAttr(), symbols);
  if (!state ||
      failed(verifyStateType(*this, "a result", getResult().getType(), state)))
    return failure();
  return verifyVector(*this, "a flat vector", getFlat().getType(), bucket,
                      /*isPart=*/false, symbols);
}

//===----------------------------------------------------------------------===//
// UpdateOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyStateUpdate(UpdateOp update, StateOp state) {
  if (update.getScale() || update.getUpdated())
    return update.emitOpError("expected no scale and no result where a state "
                              "is updated, got a ")
           << (update.getScale() ? "scale" : "result");
  if (failed(verifyTrainable(update, state)))
    return failure();
  if (failed(verifyStateType(update, "a gradient",
                             update.getGradient().getType(), state)))
    return failure();
  auto sum = update.getGradient().getDefiningOp<AccumulateOp>();
  if (sum && sum.getStateAttr() == update.getTargetAttr())
    return success();
  return update.emitOpError("expected the gradient to be the piper.accumulate "
                            "of ")
         << update.getTargetAttr() << ", got another value";
}

static LogicalResult verifyBucketUpdate(UpdateOp update, BucketOp bucket,
                                        SymbolTableCollection &symbols) {
  if (!update.getScale() || !update.getUpdated())
    return update.emitOpError("expected a scale and a result where a bucket "
                              "is updated, got no ")
           << (update.getScale() ? "result" : "scale");
  Type pair = RankedTensorType::get({2}, Float32Type::get(update.getContext()));
  if (update.getScale().getType() != pair)
    return update.emitOpError("expected a scale of ")
           << pair << ", got " << update.getScale().getType();
  if (bucket.getOptimizerAttr() != update.getOptimizerAttr()) {
    InFlightDiagnostic error = update.emitOpError("expected the bucket's "
                                                  "optimizer, ");
    if (bucket.getOptimizerAttr())
      error << bucket.getOptimizerAttr();
    else
      error << "none";
    error << ", got " << update.getOptimizerAttr();
    return withNote(std::move(error), bucket, "the bucket is here");
  }
  if (failed(verifyVector(update, "a gradient", update.getGradient().getType(),
                          bucket, bucket.getShardOptimizer(), symbols)))
    return failure();
  return verifyVector(update, "a result", update.getUpdated().getType(), bucket,
                      bucket.getShardOptimizer(), symbols);
}

LogicalResult UpdateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifySymbol<OptimizerOp>(*this, getOptimizerAttr(), symbols)) ||
      failed(verifySymbol<StreamOp>(*this, getStreamAttr(), symbols)))
    return failure();
  if (auto bucket =
          symbols.lookupNearestSymbolFrom<BucketOp>(*this, getTargetAttr()))
    return verifyBucketUpdate(*this, bucket, symbols);
  auto state =
      lookupSymbol<StateOp>(*this, getTargetAttr(), symbols, stateOrBucket);
  return failure(!state || failed(verifyStateUpdate(*this, state)));
}
