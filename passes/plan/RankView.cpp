// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RankView.cpp - a graph as the ranks of one class see it ------------===//

#include "passes/plan/RankView.h"

using namespace mlir;
using namespace piper;

RankView::RankView(EntryOp entry, ArrayRef<int64_t> ranks, StateLayout &layout,
                   Communicators &communicators)
    : builder(OpBuilder::atBlockEnd(&entry.getBody().front())), entry(entry),
      ranks(ranks), layout(layout), communicators(communicators) {}

AddressAttr RankView::createBuffer(Location loc, int64_t bytes, StringRef kind,
                                   StringRef label) {
  OpBuilder::InsertionGuard guard(builder);
  if (lastBuffer)
    builder.setInsertionPointAfter(lastBuffer);
  else
    builder.setInsertionPointToStart(&entry.getBody().front());
  // Memory of an empty tensor still has an address.
  lastBuffer = BufferOp::create(builder, loc, numBuffers, label, kind,
                                std::max<int64_t>(bytes, 1), IntegerAttr(),
                                IntegerAttr(), IntegerAttr());
  return getAddress(AddressSpace::buffer, 0, numBuffers++);
}

AddressAttr RankView::atPosition(AddressAttr base, DenseI64ArrayAttr group,
                                 int64_t stride, Location loc) {
  const int64_t *found = llvm::find(group.asArrayRef(), ranks.front());
  int64_t position = found - group.asArrayRef().begin();
  if (ranks.size() == 1)
    return base.advance(position * stride);
  return AddressAttr::get(base.getContext(), base.getSpace(), base.getIndex(),
                          base.getOffset(),
                          communicators.getForPositions(loc, group), stride);
}

Operation *RankView::getLastAction() {
  Block &body = entry.getBody().front();
  if (body.empty() || !isa<ActionOpInterface>(body.back()))
    return nullptr;
  return &body.back();
}

void RankView::order(Operation *before, const ActionSite &after) {
  auto [it, isNew] = events.try_emplace(before, numEvents);
  auto event = builder.getI64IntegerAttr(it->second);
  if (isNew) {
    ++numEvents;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfter(before);
    auto stream = cast<ActionOpInterface>(before).getStreamAttr();
    RecordOp::create(builder, before->getLoc(), event, stream, StringAttr(),
                     StringAttr(), IntegerAttr());
  }
  WaitOp::create(builder, after.loc, event, after.stream, StringAttr(),
                 StringAttr(), IntegerAttr());
}
