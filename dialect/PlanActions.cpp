// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanActions.cpp - the actions of a plan ----------------------------===//

#include "dialect/PiperDialect.h"
#include "dialect/PlanAttrs.h"

using namespace mlir;
using namespace piper;

//===----------------------------------------------------------------------===//
// Custom directives
//===----------------------------------------------------------------------===//

ParseResult piper::parseAddresses(OpAsmParser &parser, ArrayAttr &addresses) {
  SmallVector<Attribute> parsed;
  auto parseOne = [&]() -> ParseResult {
    AddressAttr address;
    if (parseAddressOperand(parser, address))
      return failure();
    parsed.push_back(address);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOne))
    return failure();
  addresses = parser.getBuilder().getArrayAttr(parsed);
  return success();
}

void piper::printAddresses(OpAsmPrinter &printer, Operation *,
                           ArrayAttr addresses) {
  printer << '(';
  llvm::interleaveComma(addresses, printer, [&](Attribute attribute) {
    printAddress(printer.getStream(), cast<AddressAttr>(attribute));
  });
  printer << ')';
}

void piper::printAddressOperand(OpAsmPrinter &printer, Operation *,
                                AddressAttr address) {
  printAddress(printer.getStream(), address);
}

//===----------------------------------------------------------------------===//
// Addresses of each action
//===----------------------------------------------------------------------===//

SmallVector<AddressAttr> LaunchOp::getAddresses() {
  return llvm::to_vector(getPointers().getAsRange<AddressAttr>());
}
void LaunchOp::setAddresses(ArrayRef<AddressAttr> addresses) {
  SmallVector<Attribute> pointers(addresses.begin(), addresses.end());
  setPointersAttr(ArrayAttr::get(getContext(), pointers));
}

#define PIPER_NO_ADDRESSES(OP)                                                 \
  SmallVector<AddressAttr> OP::getAddresses() { return {}; }                   \
  void OP::setAddresses(ArrayRef<AddressAttr>) {}
#define PIPER_ONE_ADDRESS(OP, NAME)                                            \
  SmallVector<AddressAttr> OP::getAddresses() { return {get##NAME()}; }        \
  void OP::setAddresses(ArrayRef<AddressAttr> addresses) {                     \
    set##NAME##Attr(addresses[0]);                                             \
  }
#define PIPER_TWO_ADDRESSES(OP, FIRST, SECOND)                                 \
  SmallVector<AddressAttr> OP::getAddresses() {                                \
    return {get##FIRST(), get##SECOND()};                                      \
  }                                                                            \
  void OP::setAddresses(ArrayRef<AddressAttr> addresses) {                     \
    set##FIRST##Attr(addresses[0]);                                            \
    set##SECOND##Attr(addresses[1]);                                           \
  }

PIPER_TWO_ADDRESSES(CopyOp, Dst, Src)
PIPER_ONE_ADDRESS(FillZeroOp, Dst)
PIPER_TWO_ADDRESSES(PlanAccumulateOp, Dst, Src)
PIPER_NO_ADDRESSES(RecordOp)
PIPER_NO_ADDRESSES(WaitOp)
PIPER_ONE_ADDRESS(PlanSendOp, Src)
PIPER_ONE_ADDRESS(PlanRecvOp, Dst)
PIPER_NO_ADDRESSES(ReleaseOp)
PIPER_TWO_ADDRESSES(PlanAllReduceOp, Src, Dst)
PIPER_TWO_ADDRESSES(PlanReduceScatterOp, Src, Dst)
PIPER_TWO_ADDRESSES(PlanAllGatherOp, Src, Dst)
PIPER_TWO_ADDRESSES(PlanBroadcastOp, Src, Dst)
PIPER_TWO_ADDRESSES(PlanAllToAllOp, Src, Dst)

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

static LogicalResult verifyAddresses(ActionOpInterface action) {
  for (AddressAttr address : action.getAddresses()) {
    if (address.getOffset() < 0 || address.getIndex() < 0 ||
        address.getStride() < 0)
      return action->emitOpError("expected an address of at least 0, got ")
             << address;
    if (!address.getCommunicator() && address.getStride() != 0)
      return action->emitOpError("expected a communicator with a stride, got ")
             << address;
  }
  return success();
}

static LogicalResult verifySize(ActionOpInterface action, StringRef name,
                                int64_t size) {
  if (size <= 0)
    return action->emitOpError("expected ")
           << name << " to be positive, got " << size;
  return verifyAddresses(action);
}

LogicalResult LaunchOp::verify() {
  for (Attribute pointer : getPointers())
    if (!isa<AddressAttr>(pointer))
      return emitOpError("expected addresses, got ") << pointer;
  return verifyAddresses(*this);
}
LogicalResult CopyOp::verify() {
  return verifySize(*this, "bytes", getBytes());
}
LogicalResult FillZeroOp::verify() {
  return verifySize(*this, "bytes", getBytes());
}
LogicalResult PlanAccumulateOp::verify() {
  if (!isa<FloatType>(getType()))
    return emitOpError("expected a floating-point type, got ") << getType();
  return verifySize(*this, "count", getCount());
}
LogicalResult RecordOp::verify() { return success(); }
LogicalResult WaitOp::verify() { return success(); }
LogicalResult PlanSendOp::verify() {
  return verifySize(*this, "bytes", getBytes());
}
LogicalResult PlanRecvOp::verify() {
  return verifySize(*this, "bytes", getBytes());
}
LogicalResult ReleaseOp::verify() {
  if (int64_t(getMessage()) < 0)
    return emitOpError("expected a message of at least 0, got ")
           << int64_t(getMessage());
  return success();
}
LogicalResult PlanAllReduceOp::verify() {
  return verifySize(*this, "count", getCount());
}
LogicalResult PlanReduceScatterOp::verify() {
  return verifySize(*this, "count", getCount());
}
LogicalResult PlanAllGatherOp::verify() {
  return verifySize(*this, "count", getCount());
}
LogicalResult PlanBroadcastOp::verify() {
  if (int64_t(getRoot()) < 0)
    return emitOpError("expected a root of at least 0, got ")
           << int64_t(getRoot());
  return verifySize(*this, "count", getCount());
}
LogicalResult PlanAllToAllOp::verify() {
  return verifySize(*this, "count", getCount());
}
