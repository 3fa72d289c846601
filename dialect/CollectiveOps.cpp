// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CollectiveOps.cpp - communication in the global graph --------------===//

#include "dialect/Verification.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace piper;

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

static std::optional<int64_t> getBytes(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape() ||
      !tensor.getElementType().isIntOrFloat())
    return std::nullopt;
  // An i1 is stored as a byte.
  return tensor.getNumElements() *
         llvm::divideCeil(tensor.getElementTypeBitWidth(), 8);
}

static SmallVector<int64_t> concat(ArrayRef<int64_t> first,
                                   ArrayRef<int64_t> second) {
  SmallVector<int64_t> all(first);
  llvm::append_range(all, second);
  return all;
}

// Every verified collective has ranks, so none of these sees an absent group.
#define PIPER_GROUP_COLLECTIVE(OP)                                             \
  SmallVector<int64_t> OP::getParticipants() {                                 \
    return SmallVector<int64_t>(getRanksAttr().asArrayRef());                  \
  }                                                                            \
  std::optional<int64_t> OP::getContributionBytes() {                          \
    return getBytes(getOperand().getType());                                   \
  }                                                                            \
  LogicalResult OP::verifySymbolUses(SymbolTableCollection &symbols) {         \
    return verifySymbol<StreamOp>(*this, getStreamAttr(), symbols);            \
  }
PIPER_GROUP_COLLECTIVE(AllReduceOp)
PIPER_GROUP_COLLECTIVE(ReduceScatterOp)
PIPER_GROUP_COLLECTIVE(AllGatherOp)
PIPER_GROUP_COLLECTIVE(BroadcastOp)
PIPER_GROUP_COLLECTIVE(AllToAllOp)
#undef PIPER_GROUP_COLLECTIVE

SmallVector<int64_t> SendOp::getParticipants() {
  return concat(getRanksAttr().asArrayRef(), getTo());
}

std::optional<int64_t> SendOp::getContributionBytes() {
  return getBytes(getOperand().getType());
}

LogicalResult SendOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifySymbol<StreamOp>(*this, getStreamAttr(), symbols);
}

SmallVector<int64_t> RecvOp::getParticipants() {
  return concat(getFrom(), getRanksAttr().asArrayRef());
}

std::optional<int64_t> RecvOp::getContributionBytes() {
  return getBytes(getResult().getType());
}

LogicalResult RecvOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifySymbol<StreamOp>(*this, getStreamAttr(), symbols);
}

//===----------------------------------------------------------------------===//
// Collectives inside one group
//===----------------------------------------------------------------------===//

static LogicalResult verifyGroupGiven(SchedulableOpInterface op) {
  if (op.getRanksAttr() && !op.getRanksAttr().empty())
    return success();
  return op->emitOpError("expected a device group, got none");
}

static LogicalResult verifySameType(Operation *op, RankedTensorType operand,
                                    RankedTensorType result) {
  if (operand == result)
    return success();
  return op->emitOpError("expected operand and result of one type, got ")
         << operand << " and " << result;
}

static LogicalResult verifyStatic(Operation *op, RankedTensorType type) {
  if (type.hasStaticShape())
    return success();
  return op->emitOpError("expected a static shape, got ") << type;
}

/// `whole` is a vector of n times the elements of `part`, n the group's size.
static LogicalResult verifyParts(SchedulableOpInterface op,
                                 RankedTensorType whole,
                                 RankedTensorType part) {
  if (failed(verifyGroupGiven(op)))
    return failure();
  for (RankedTensorType type : {whole, part})
    if (type.getRank() != 1 || !type.hasStaticShape())
      return op->emitOpError("expected vectors of static length, got ") << type;
  if (whole.getElementType() != part.getElementType())
    return op->emitOpError("expected one element type, got ")
           << whole.getElementType() << " and " << part.getElementType();
  int64_t numRanks = op.getRanksAttr().size();
  if (whole.getDimSize(0) != part.getDimSize(0) * numRanks)
    return op->emitOpError("expected ")
           << numRanks << " parts of " << part.getDimSize(0)
           << " elements, got " << whole.getDimSize(0) << " elements";
  return success();
}

LogicalResult AllReduceOp::verify() {
  RankedTensorType type = getOperand().getType();
  if (failed(verifyGroupGiven(*this)) || failed(verifyStatic(*this, type)))
    return failure();
  return verifySameType(*this, type, getResult().getType());
}

LogicalResult ReduceScatterOp::verify() {
  return verifyParts(*this, getOperand().getType(), getResult().getType());
}

LogicalResult AllGatherOp::verify() {
  return verifyParts(*this, getResult().getType(), getOperand().getType());
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType type = getOperand().getType();
  if (failed(verifyGroupGiven(*this)) || failed(verifyStatic(*this, type)))
    return failure();
  int64_t root = getRoot();
  int64_t numRanks = getRanks()->size();
  if (root < 0 || root >= numRanks)
    return emitOpError("expected a root from 0 to ")
           << numRanks - 1 << ", got " << root;
  return verifySameType(*this, type, getResult().getType());
}

LogicalResult AllToAllOp::verify() {
  if (failed(verifyGroupGiven(*this)))
    return failure();
  RankedTensorType type = getOperand().getType();
  if (type.getRank() < 1)
    return emitOpError("expected a leading dimension, got ") << type;
  int64_t numRanks = getRanks()->size();
  if (!type.isDynamicDim(0) && type.getDimSize(0) % numRanks != 0)
    return emitOpError("expected a leading dimension that is a multiple of ")
           << numRanks << ", got " << type.getDimSize(0);
  return verifySameType(*this, type, getResult().getType());
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

LogicalResult SendOp::verify() {
  if (failed(verifyGroupGiven(*this)) ||
      failed(verifyMicrobatch(*this, getMicrobatch(), getNumMicrobatches())))
    return failure();
  if (getTags() && failed(verifyTags(*this, *getTags())))
    return failure();
  if (getRanks()->size() != getTo().size())
    return emitOpError("expected as many receivers as senders, got ")
           << getTo().size() << " of " << getRanks()->size();
  Operation *receiver = nullptr;
  for (Operation *user : getMessage().getUsers()) {
    if (!isa<RecvOp>(user))
      return withNote(emitOpError("expected only a piper.recv to use the "
                                  "message, got ")
                          << user->getName(),
                      user, "the other use is here");
    if (receiver)
      return withNote(emitOpError("expected one piper.recv of the message, "
                                  "got a second"),
                      user, "a receive is here");
    receiver = user;
  }
  if (!receiver)
    return emitOpError("expected one piper.recv of the message, got none");
  return success();
}

LogicalResult RecvOp::verify() {
  if (failed(verifyGroupGiven(*this)))
    return failure();
  if (getTags() && failed(verifyTags(*this, *getTags())))
    return failure();
  auto send = getMessage().getDefiningOp<SendOp>();
  if (!send)
    return emitOpError("expected the message of a piper.send, got another");
  if (!send.getRanksAttr())
    return success(); // the send reports it
  if (send.getToAttr() != getRanksAttr())
    return withNote(
        emitOpError("expected the ranks that the message goes to, [")
            << send.getTo() << "], got [" << *getRanks() << "]",
        send, "the send is here");
  if (send.getRanksAttr() != getFromAttr())
    return withNote(emitOpError("expected the ranks that the message comes "
                                "from, [")
                        << send.getRanksAttr().asArrayRef() << "], got ["
                        << getFrom() << "]",
                    send, "the send is here");
  if (send.getOperand().getType() != getResult().getType())
    return withNote(emitOpError("expected the type that is sent, ")
                        << send.getOperand().getType() << ", got "
                        << getResult().getType(),
                    send, "the send is here");
  if (send.getMicrobatch() != getMicrobatch() ||
      send.getNumMicrobatches() != getNumMicrobatches())
    return withNote(emitOpError("expected the send's microbatch ")
                        << send.getMicrobatch() << " of "
                        << send.getNumMicrobatches() << ", got "
                        << getMicrobatch() << " of " << getNumMicrobatches(),
                    send, "the send is here");
  return success();
}
