// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- BucketOp.cpp - states in one flat vector ---------------------------===//

#include "dialect/Verification.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

std::optional<int64_t> BucketOp::getOffset(StringRef state) {
  for (auto [reference, offset] :
       llvm::zip(getStates().getAsRange<FlatSymbolRefAttr>(), getOffsets()))
    if (reference.getValue() == state)
      return offset;
  return std::nullopt;
}

LogicalResult BucketOp::verify() {
  if (getRanks().empty())
    return emitOpError("expected at least one rank, got []");
  if (getStates().empty())
    return emitOpError("expected at least one state, got []");
  if (getStates().size() != getOffsets().size())
    return emitOpError("expected one offset per state, got ")
           << getOffsets().size() << " offsets of " << getStates().size()
           << " states";
  int64_t numRanks = getRanks().size();
  int64_t padded = getPadded();
  if (padded < static_cast<int64_t>(getElements()) || padded % numRanks != 0)
    return emitOpError("expected padded to be at least ")
           << getElements() << " and a multiple of " << numRanks << ", got "
           << padded;
  return verifyShardFlags(*this, getShardParams(), getShardGrads(),
                          getShardOptimizer());
}

/// States are of one element type and lie behind one another.
static LogicalResult verifyLayout(BucketOp bucket,
                                  SymbolTableCollection &symbols) {
  Type elementType;
  int64_t end = 0;
  int64_t elements = bucket.getElements();
  for (auto [reference, offset] :
       llvm::zip(bucket.getStates().getAsRange<FlatSymbolRefAttr>(),
                 bucket.getOffsets())) {
    auto state = lookupSymbol<StateOp>(bucket, reference, symbols);
    if (!state)
      return failure();
    auto type = dyn_cast<RankedTensorType>(state.getType());
    if (!type || !type.hasStaticShape())
      return success(); // the state's own verifier reports it
    if (elementType && elementType != type.getElementType())
      return withNote(
          bucket.emitOpError("expected states of one element type, got ")
              << elementType << " and " << type.getElementType(),
          state, "the state is here");
    if (bucket.getOptimizer() && !state.getTrainable())
      return withNote(bucket.emitOpError("expected trainable states where an "
                                         "optimizer is given, got ")
                          << reference,
                      state, "the state is here");
    if (offset < end)
      return withNote(bucket.emitOpError("expected ")
                          << reference << " to start at " << end
                          << " or later, got " << offset,
                      state, "the state is here");
    // Written so that no sum can overflow.
    int64_t numElements = type.getNumElements();
    if (numElements > elements - offset)
      return withNote(bucket.emitOpError("expected the states to end within ")
                          << elements << " elements, got " << numElements
                          << " from " << offset << " on",
                      state, "the state is here");
    elementType = type.getElementType();
    end = offset + numElements;
  }
  return success();
}

/// One walk for all buckets of a module: no rank holds a state twice, and
/// groups lie inside the mesh.
static LogicalResult verifyAllBuckets(Block *block) {
  DeviceGroupVerifier groups(MeshOp::lookup(block->getParentOp()));
  llvm::DenseMap<Attribute, SmallVector<BucketOp, 1>> holders;
  for (auto bucket : block->getOps<BucketOp>()) {
    if (failed(groups.verify(bucket, bucket.getRanksAttr())))
      return failure();
    for (Attribute state : bucket.getStates()) {
      SmallVector<BucketOp, 1> &others = holders[state];
      // Nearly always empty; two only where stages share a state by copies.
      for (BucketOp other : others)
        for (int64_t rank : other.getRanks())
          if (llvm::is_contained(bucket.getRanks(), rank))
            return withNote(
                bucket.emitOpError("expected one bucket per state and rank, "
                                   "got a second that holds ")
                    << state << " on rank " << rank,
                other, "the first is here");
      others.push_back(bucket);
    }
  }
  return success();
}

LogicalResult BucketOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayout(*this, symbols)) ||
      failed(verifySymbol<OptimizerOp>(*this, getOptimizerAttr(), symbols)) ||
      failed(verifySymbol<StreamOp>(*this, getGatherStreamAttr(), symbols)) ||
      failed(verifySymbol<StreamOp>(*this, getReduceStreamAttr(), symbols)))
    return failure();
  // The first bucket speaks for all, so that the cost stays linear: each looks
  // back no further than to the one before.
  for (Operation *prev = (*this)->getPrevNode(); prev;
       prev = prev->getPrevNode())
    if (isa<BucketOp>(prev))
      return success();
  return verifyAllBuckets((*this)->getBlock());
}
