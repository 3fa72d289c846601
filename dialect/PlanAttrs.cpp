// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanAttrs.cpp - addresses as text ----------------------------------===//

#include "dialect/PlanAttrs.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace piper;

ParseResult piper::parseAddressOperand(AsmParser &parser,
                                       AddressAttr &address) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<AddressSpace> space = symbolizeAddressSpace(keyword);
  if (!space)
    return parser.emitError(loc, "expected an address space, got ") << keyword;

  int64_t index = 0, offset = 0, stride = 0;
  FlatSymbolRefAttr communicator;
  OptionalParseResult hasIndex = parser.parseOptionalInteger(index);
  if (hasIndex.has_value() && failed(*hasIndex))
    return failure();
  if (parser.parseLSquare() || parser.parseInteger(offset))
    return failure();
  if (succeeded(parser.parseOptionalPlus()))
    if (parser.parseAttribute(communicator) || parser.parseStar() ||
        parser.parseInteger(stride))
      return failure();
  if (parser.parseRSquare())
    return failure();
  address = AddressAttr::get(parser.getContext(), *space, index, offset,
                             communicator, stride);
  return success();
}

void piper::printAddress(raw_ostream &os, AddressAttr address) {
  os << stringifyAddressSpace(address.getSpace());
  if (address.getSpace() == AddressSpace::input ||
      address.getSpace() == AddressSpace::buffer)
    os << ' ' << address.getIndex();
  os << '[' << address.getOffset();
  if (address.getCommunicator())
    os << " + " << address.getCommunicator() << " * " << address.getStride();
  os << ']';
}

Attribute AddressAttr::parse(AsmParser &parser, Type) {
  AddressAttr address;
  if (parser.parseLess() || parseAddressOperand(parser, address) ||
      parser.parseGreater())
    return {};
  return address;
}

void AddressAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printAddress(printer.getStream(), *this);
  printer << '>';
}
