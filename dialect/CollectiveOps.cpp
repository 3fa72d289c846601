// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- CollectiveOps.cpp - communication in the global graph --------------===//

#include "dialect/PiperDialect.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

static std::optional<int64_t> getBytes(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape() ||
      !tensor.getElementType().isIntOrFloat())
    return std::nullopt;
  // i1 is stored as a byte, as all narrow types are.
  return tensor.getNumElements() *
         llvm::divideCeil(tensor.getElementTypeBitWidth(), 8);
}

static SmallVector<int64_t> concat(std::optional<ArrayRef<int64_t>> first,
                                   ArrayRef<int64_t> second) {
  SmallVector<int64_t> all;
  if (first)
    llvm::append_range(all, *first);
  llvm::append_range(all, second);
  return all;
}

/// Number of members, or nothing before placement.
static std::optional<int64_t> getGroupSize(SchedulableOpInterface op) {
  DenseI64ArrayAttr ranks = op.getRanksAttr();
  return ranks ? std::optional<int64_t>(ranks.size()) : std::nullopt;
}

static LogicalResult verifySameType(Operation *op, Type operand, Type result) {
  if (operand == result)
    return success();
  return op->emitOpError("expected operand and result of one type, got ")
         << operand << " and " << result;
}

/// `whole` is a vector of n times the elements of `part`, n the group's size.
static LogicalResult verifyParts(SchedulableOpInterface op,
                                 RankedTensorType whole,
                                 RankedTensorType part) {
  if (whole.getRank() != 1 || part.getRank() != 1 || !whole.hasStaticShape() ||
      !part.hasStaticShape())
    return op->emitOpError("expected vectors of static length, got ")
           << whole << " and " << part;
  if (whole.getElementType() != part.getElementType())
    return op->emitOpError("expected one element type, got ")
           << whole.getElementType() << " and " << part.getElementType();
  std::optional<int64_t> members = getGroupSize(op);
  if (members && whole.getDimSize(0) != part.getDimSize(0) * *members)
    return op->emitOpError("expected ")
           << *members << " parts of " << part.getDimSize(0)
           << " elements, got " << whole.getDimSize(0) << " elements";
  return success();
}

#define PIPER_GROUP_COLLECTIVE(OP)                                             \
  SmallVector<int64_t> OP::getParticipants() { return concat(getRanks(), {}); }\
  std::optional<int64_t> OP::getContributionBytes() {                          \
    return getBytes(getOperand().getType());                                   \
  }
PIPER_GROUP_COLLECTIVE(AllReduceOp)
PIPER_GROUP_COLLECTIVE(ReduceScatterOp)
PIPER_GROUP_COLLECTIVE(AllGatherOp)
PIPER_GROUP_COLLECTIVE(BroadcastOp)
PIPER_GROUP_COLLECTIVE(AllToAllOp)
#undef PIPER_GROUP_COLLECTIVE

LogicalResult AllReduceOp::verify() {
  return verifySameType(*this, getOperand().getType(), getResult().getType());
}

LogicalResult ReduceScatterOp::verify() {
  return verifyParts(*this, getOperand().getType(), getResult().getType());
}

LogicalResult AllGatherOp::verify() {
  return verifyParts(*this, getResult().getType(), getOperand().getType());
}

LogicalResult BroadcastOp::verify() {
  std::optional<int64_t> members = getGroupSize(*this);
  int64_t root = getRoot();
  if (root < 0 || (members && root >= *members))
    return emitOpError("expected a root inside the group, got ") << root;
  return verifySameType(*this, getOperand().getType(), getResult().getType());
}

LogicalResult AllToAllOp::verify() {
  RankedTensorType type = getOperand().getType();
  if (type.getRank() < 1)
    return emitOpError("expected at least one dimension, got ") << type;
  std::optional<int64_t> members = getGroupSize(*this);
  if (members && !type.isDynamicDim(0) && type.getDimSize(0) % *members != 0)
    return emitOpError("expected a leading dimension that is a multiple of ")
           << *members << ", got " << type.getDimSize(0);
  return verifySameType(*this, type, getResult().getType());
}

SmallVector<int64_t> SendOp::getParticipants() {
  return concat(getRanks(), getTo());
}

std::optional<int64_t> SendOp::getContributionBytes() {
  return getBytes(getOperand().getType());
}

LogicalResult SendOp::verify() {
  std::optional<int64_t> members = getGroupSize(*this);
  if (members && *members != static_cast<int64_t>(getTo().size()))
    return emitOpError("expected groups of one size, got ")
           << *members << " senders and " << getTo().size() << " receivers";
  return success();
}

SmallVector<int64_t> RecvOp::getParticipants() {
  SmallVector<int64_t> all(getFrom());
  if (getRanks())
    llvm::append_range(all, *getRanks());
  return all;
}

std::optional<int64_t> RecvOp::getContributionBytes() {
  return getBytes(getResult().getType());
}

LogicalResult RecvOp::verify() {
  auto send = getMessage().getDefiningOp<SendOp>();
  if (!send)
    return emitOpError("expected a message that piper.send makes");
  if (send.getOperand().getType() != getResult().getType()) {
    InFlightDiagnostic error = emitOpError("expected the type that is sent, ")
                               << send.getOperand().getType() << ", got "
                               << getResult().getType();
    error.attachNote(send.getLoc()) << "sent here";
    return error;
  }
  return success();
}
