// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Verification.cpp - what several verifiers share --------------------===//

#include "dialect/Verification.h"

using namespace mlir;
using namespace piper;

LogicalResult piper::withNote(InFlightDiagnostic &&error, Operation *other,
                              const Twine &note) {
  error.attachNote(other->getLoc()) << note;
  return error;
}

LogicalResult piper::verifyMicrobatch(Operation *op, int64_t microbatch,
                                      int64_t numMicrobatches) {
  if (microbatch >= 0 && microbatch < numMicrobatches)
    return success();
  return op->emitOpError("expected 0 <= microbatch < num_microbatches, got ")
         << microbatch << " of " << numMicrobatches;
}

LogicalResult piper::verifyTags(Operation *op, DictionaryAttr tags) {
  for (NamedAttribute tag : tags) {
    if (tag.getName() == "PASS")
      return op->emitOpError("expected tags other than PASS, got PASS = ")
             << tag.getValue();
    auto index = dyn_cast<IntegerAttr>(tag.getValue());
    bool isIndex =
        index && index.getType().isSignlessInteger(64) && index.getInt() >= 0;
    if (!isIndex && !isa<UnitAttr>(tag.getValue()))
      return op->emitOpError("expected tag ")
             << tag.getName() << " to be an index of at least 0 or unit, got "
             << tag.getValue();
  }
  return success();
}

LogicalResult piper::verifyExecuted(Operation *op, StringRef what,
                                    Value value) {
  Operation *maker = value.getDefiningOp();
  if (isa_and_nonnull<SchedulableOpInterface>(maker))
    return success();
  InFlightDiagnostic error = op->emitOpError("expected ")
                             << what << " that a rank computes";
  if (!maker)
    return error;
  error << ", got one of " << maker->getName();
  return withNote(std::move(error), maker, "it is made here");
}

LogicalResult piper::verifyShardFlags(Operation *op, bool params, bool grads,
                                      bool optimizer) {
  if (grads && !optimizer)
    return op->emitOpError(
        "expected shard_optimizer with shard_grads, got shard_grads alone");
  if (params && !grads)
    return op->emitOpError("expected shard_grads with shard_params, got "
                           "shard_params without it");
  return success();
}

LogicalResult DeviceGroupVerifier::verify(Operation *op,
                                          DenseI64ArrayAttr group) {
  if (!group || verified.contains(group))
    return success();
  if (group.empty())
    return op->emitOpError("expected at least one rank, got []");
  if (!mesh)
    return op->emitOpError("expected a piper.mesh in the module, got ranks [")
           << group.asArrayRef() << "] without one";
  int64_t numRanks = mesh.getNumRanks();
  llvm::SmallDenseSet<int64_t> seen;
  for (int64_t rank : group.asArrayRef()) {
    if (rank < 0 || rank >= numRanks)
      return withNote(op->emitOpError("expected ranks from 0 to ")
                          << numRanks - 1 << ", got " << rank,
                      mesh, "the mesh is here");
    if (!seen.insert(rank).second)
      return op->emitOpError("expected distinct ranks, got ")
             << rank << " twice";
  }
  verified.insert(group);
  return success();
}

LogicalResult DeviceGroupVerifier::verifyDisjoint(Operation *op,
                                                  DenseI64ArrayAttr first,
                                                  DenseI64ArrayAttr second) {
  if (!disjoint.insert({first, second}).second)
    return success();
  llvm::SmallDenseSet<int64_t> members(first.asArrayRef().begin(),
                                       first.asArrayRef().end());
  for (int64_t rank : second.asArrayRef())
    if (members.contains(rank))
      return op->emitOpError("expected two groups without a common rank, got ")
             << rank << " in both";
  return success();
}
