// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- SymbolOps.cpp - mesh, streams, state, buckets, optimizers, chunks --===//

#include "dialect/PiperDialect.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <functional>
#include <numeric>

using namespace mlir;
using namespace piper;

//===----------------------------------------------------------------------===//
// MeshOp
//===----------------------------------------------------------------------===//

int64_t MeshOp::getNumRanks() {
  ArrayRef<int64_t> shape = getShape();
  return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                         std::multiplies<int64_t>());
}

LogicalResult MeshOp::verify() {
  if (getAxes().empty())
    return emitOpError("expected at least one axis");
  if (getAxes().size() != getShape().size())
    return emitOpError("expected one extent per axis, got ")
           << getAxes().size() << " axes and " << getShape().size()
           << " extents";
  llvm::SmallPtrSet<Attribute, 4> seen;
  for (auto [axis, extent] : llvm::zip(getAxes(), getShape())) {
    auto name = cast<StringAttr>(axis);
    if (name.empty())
      return emitOpError("expected every axis to have a name, got \"\"");
    if (!seen.insert(name).second)
      return emitOpError("expected distinct axes, got ") << name << " twice";
    if (extent < 1)
      return emitOpError("expected an extent of at least 1 for axis ")
             << name << ", got " << extent;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// StateOp
//===----------------------------------------------------------------------===//

LogicalResult StateOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape())
    return emitOpError("expected a ranked tensor of static shape, got ")
           << getType();
  if (getTrainable() && getKind() != StateKind::parameter)
    return emitOpError("expected only a parameter to be trainable, got a ")
           << stringifyStateKind(getKind());
  if (getTrainable() && !isa<FloatType>(type.getElementType()))
    return emitOpError(
               "expected a trainable parameter of floating-point type, got ")
           << type.getElementType();
  if (getNames().empty())
    return emitOpError("expected at least one name");
  return success();
}

//===----------------------------------------------------------------------===//
// OptimizerOp
//===----------------------------------------------------------------------===//

LogicalResult OptimizerOp::verify() {
  if (getRule() != "sgd" && getRule() != "adam" && getRule() != "adamw")
    return emitOpError("expected the rule sgd, adam or adamw, got \"")
           << getRule() << "\"";
  return success();
}

//===----------------------------------------------------------------------===//
// BucketOp
//===----------------------------------------------------------------------===//

LogicalResult BucketOp::verify() {
  if (getRanks().empty())
    return emitOpError("expected at least one rank");
  if (getStates().size() != getOffsets().size())
    return emitOpError("expected one offset per state, got ")
           << getOffsets().size() << " offsets and " << getStates().size()
           << " states";
  int64_t numRanks = getRanks().size();
  int64_t padded = getPadded();
  if (padded < getElements() || padded % numRanks != 0)
    return emitOpError("expected padded to be a multiple of ")
           << numRanks << " and at least " << getElements() << ", got "
           << padded;
  if (getShardGrads() && !getShardOptimizer())
    return emitOpError("expected shard_optimizer where shard_grads is given");
  if (getShardParams() && !getShardGrads())
    return emitOpError("expected shard_grads where shard_params is given");
  return success();
}

//===----------------------------------------------------------------------===//
// ChunkOp
//===----------------------------------------------------------------------===//

FlatSymbolRefAttr ChunkOp::lookupMember(int64_t rows) {
  for (auto member : getMembers().getAsRange<DictionaryAttr>()) {
    auto binding = member.getAs<DictionaryAttr>("binding");
    auto bound = binding ? binding.getAs<IntegerAttr>("rows") : IntegerAttr();
    if (bound && bound.getInt() == rows)
      return member.getAs<FlatSymbolRefAttr>("function");
  }
  return {};
}

LogicalResult ChunkOp::verify() {
  if (getMembers().empty())
    return emitOpError("expected at least one member");
  for (Attribute attribute : getMembers()) {
    auto member = cast<DictionaryAttr>(attribute);
    if (!member.getAs<DictionaryAttr>("binding") ||
        !member.getAs<FlatSymbolRefAttr>("function"))
      return emitOpError("expected members {binding = {...}, function = "
                         "@name}, got ")
             << member;
  }
  for (ArrayRef<int64_t> counts : {getOperandCounts(), getResultCounts()})
    for (int64_t count : counts)
      if (count < 0)
        return emitOpError("expected counts of at least 0, got ") << count;
  return success();
}
