// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DirectiveOps.cpp - a strategy as data ------------------------------===//

#include "dialect/Verification.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;
using namespace piper;

//===----------------------------------------------------------------------===//
// StrategyOp
//===----------------------------------------------------------------------===//

LogicalResult StrategyOp::verify() { return verifyOnlyOne(*this); }

LogicalResult StrategyOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 0)
    return emitOpError("expected a block without arguments, got ")
           << block.getNumArguments();
  for (Operation &op : block)
    if (!isa<DirectiveOpInterface>(op))
      return withNote(emitOpError("expected directives only, got ")
                          << op.getName(),
                      &op, "the operation is here");
  return success();
}

LogicalResult StrategyOp::verifySymbolUses(SymbolTableCollection &) {
  DeviceGroupVerifier groups(MeshOp::lookup(*this));
  for (auto directive : getBody().getOps<DirectiveOpInterface>())
    if (failed(groups.verify(directive, directive.getDevicesAttr())))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Filters
//===----------------------------------------------------------------------===//

/// A filter is a conjunction of tags and, under `PASS`, a pass.
static LogicalResult verifyFilter(Operation *op, DictionaryAttr filter) {
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
    bool isIndex =
        index && index.getType().isSignlessInteger(64) && index.getInt() >= 0;
    if (!isIndex && !isa<UnitAttr>(term.getValue()) && !(text && text == "*"))
      return op->emitOpError("expected tag ")
             << term.getName()
             << " to be an index of at least 0, \"*\" or unit, got "
             << term.getValue();
  }
  return success();
}

SmallVector<DictionaryAttr> SplitOp::getFilters() { return {getFilter()}; }
SmallVector<DictionaryAttr> PlaceOp::getFilters() { return {getFilter()}; }
SmallVector<DictionaryAttr> ReplicateOp::getFilters() { return {getFilter()}; }

SmallVector<DictionaryAttr> OrderOp::getFilters() {
  SmallVector<DictionaryAttr> filters;
  for (auto group : getGroups().getAsRange<ArrayAttr>())
    llvm::append_range(filters, group.getAsRange<DictionaryAttr>());
  return filters;
}

//===----------------------------------------------------------------------===//
// Directives
//===----------------------------------------------------------------------===//

static LogicalResult verifyStreamName(Operation *op, StringRef field,
                                      StringRef name) {
  if (!name.empty())
    return success();
  return op->emitOpError("expected a name for ") << field << ", got \"\"";
}

LogicalResult SplitOp::verify() {
  if (getDimName().empty() || getDimName() == "PASS")
    return emitOpError("expected a dim_name other than \"\" and \"PASS\", got ")
           << getDimNameAttr();
  if (static_cast<int64_t>(getNumMicrobatches()) < 1)
    return emitOpError("expected at least 1 microbatch, got ")
           << static_cast<int64_t>(getNumMicrobatches());
  return verifyFilter(*this, getFilter());
}

LogicalResult PlaceOp::verify() {
  if (failed(verifyStreamName(*this, "stream", getStream())))
    return failure();
  return verifyFilter(*this, getFilter());
}

LogicalResult ReplicateOp::verify() {
  double bucketSize = getBucketSize().convertToDouble();
  if (!(bucketSize > 0) || std::isinf(bucketSize))
    return emitOpError("expected a positive and finite bucket_size, got ")
           << getBucketSizeAttr();
  if (failed(verifyShardFlags(*this, getShardParams(), getShardGrads(),
                              getShardOptimizer())) ||
      failed(verifyStreamName(*this, "gather_stream", getGatherStream())) ||
      failed(verifyStreamName(*this, "reduce_stream", getReduceStream())))
    return failure();
  return verifyFilter(*this, getFilter());
}

LogicalResult OrderOp::verify() {
  if (getGroups().size() < 2)
    return emitOpError("expected at least two groups, got ")
           << getGroups().size();
  for (Attribute attribute : getGroups()) {
    auto group = dyn_cast<ArrayAttr>(attribute);
    if (!group || group.empty())
      return emitOpError("expected groups of at least one filter, got ")
             << attribute;
    for (Attribute member : group) {
      auto filter = dyn_cast<DictionaryAttr>(member);
      if (!filter)
        return emitOpError("expected a filter {tag = index, ...}, got ")
               << member;
      if (failed(verifyFilter(*this, filter)))
        return failure();
    }
  }
  return success();
}
