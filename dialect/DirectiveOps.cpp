// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DirectiveOps.cpp - a strategy as data ------------------------------===//

#include "dialect/PiperDialect.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace piper;

/// A filter is a conjunction of tags and, under `PASS`, a pass.
static LogicalResult verifyFilter(Operation *op, Attribute attribute) {
  auto filter = dyn_cast<DictionaryAttr>(attribute);
  if (!filter)
    return op->emitOpError("expected a filter {tag = index, ...}, got ")
           << attribute;
  for (NamedAttribute term : filter) {
    auto text = dyn_cast<StringAttr>(term.getValue());
    if (term.getName() == "PASS") {
      if (text && llvm::StringSwitch<bool>(text)
                      .Cases({"F", "B", "I", "W", "BI", "BW"}, true)
                      .Default(false))
        continue;
      return op->emitOpError("expected PASS = F, B, I, W, BI or BW, got ")
             << term.getValue();
    }
    auto index = dyn_cast<IntegerAttr>(term.getValue());
    bool isIndex = index && index.getType().isSignlessInteger(64) &&
                   index.getInt() >= 0;
    if (!isIndex && !isa<UnitAttr>(term.getValue()) && !(text && text == "*"))
      return op->emitOpError("expected tag ")
             << term.getName()
             << " to be an index of at least 0, \"*\" or unit, got "
             << term.getValue();
  }
  return success();
}

static LogicalResult verifyDevices(Operation *op, ArrayRef<int64_t> devices) {
  if (devices.empty())
    return op->emitOpError("expected at least one device");
  llvm::SmallDenseSet<int64_t> seen;
  for (int64_t rank : devices) {
    if (rank < 0)
      return op->emitOpError("expected ranks of at least 0, got ") << rank;
    if (!seen.insert(rank).second)
      return op->emitOpError("expected distinct ranks, got ")
             << rank << " twice";
  }
  return success();
}

LogicalResult SplitOp::verify() {
  if (getDimName().empty())
    return emitOpError("expected a dim_name, got \"\"");
  if (getNumMicrobatches() < 1)
    return emitOpError("expected at least 1 microbatch, got ")
           << getNumMicrobatches();
  return verifyFilter(*this, getFilter());
}

LogicalResult PlaceOp::verify() {
  if (failed(verifyDevices(*this, getDevices())))
    return failure();
  return verifyFilter(*this, getFilter());
}

LogicalResult ReplicateOp::verify() {
  if (failed(verifyDevices(*this, getDevices())))
    return failure();
  if (!(getBucketSize().convertToDouble() > 0))
    return emitOpError("expected a positive bucket_size, got ")
           << getBucketSizeAttr();
  if (getShardGrads() && !getShardOptimizer())
    return emitOpError("expected shard_optimizer where shard_grads is given");
  if (getShardParams() && !getShardGrads())
    return emitOpError("expected shard_grads where shard_params is given");
  return verifyFilter(*this, getFilter());
}

LogicalResult OrderOp::verify() {
  if (getGroups().size() < 2)
    return emitOpError("expected at least two groups, got ")
           << getGroups().size();
  for (Attribute attribute : getGroups()) {
    auto group = dyn_cast<ArrayAttr>(attribute);
    if (!group || group.empty())
      return emitOpError("expected groups that are lists of filters, got ")
             << attribute;
    for (Attribute filter : group)
      if (failed(verifyFilter(*this, filter)))
        return failure();
  }
  return success();
}
