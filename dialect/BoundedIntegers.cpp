// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "dialect/BoundedIntegers.h"
#include "dialect/BoundedTypes.h"
#include "dialect/PiperDialect.h"
#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace piper;

static constexpr int64_t kLargest = int64_t(1) << 48;

static bool isInBounds(int64_t value) {
  return -kLargest <= value && value <= kLargest;
}

/// The first integer of the attribute that is out of bounds.
static std::optional<int64_t> findUnbounded(Attribute attribute) {
  std::optional<int64_t> found;
  auto check = [&](int64_t value) {
    if (!found && !isInBounds(value))
      found = value;
  };
  if (auto integer = dyn_cast_if_present<IntegerAttr>(attribute)) {
    if (integer.getType().isIndex() ||
        integer.getType().getIntOrFloatBitWidth() <= 64)
      check(integer.getValue().getSExtValue());
  } else if (auto list = dyn_cast_if_present<DenseI64ArrayAttr>(attribute)) {
    for (int64_t value : list.asArrayRef())
      check(value);
  } else if (auto address = dyn_cast_if_present<AddressAttr>(attribute)) {
    check(address.getOffset());
    check(address.getIndex());
    check(address.getStride());
  } else if (auto segment = dyn_cast_if_present<SegmentAttr>(attribute)) {
    for (int64_t value :
         {segment.getAt(), segment.getElement(), segment.getCount(),
          segment.getStride(), segment.getRepeat(), segment.getRepeatStride()})
      check(value);
  } else if (auto array = dyn_cast_if_present<ArrayAttr>(attribute)) {
    for (Attribute element : array)
      if (!found)
        found = findUnbounded(element);
  } else if (auto dictionary = dyn_cast_if_present<DictionaryAttr>(attribute)) {
    for (NamedAttribute entry : dictionary)
      if (!found)
        found = findUnbounded(entry.getValue());
  }
  return found;
}

/// The first tensor that the operation is about and that is too large.
static Type findUnboundedType(Operation *op) {
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (!isBounded(type))
      return type;
  for (StringAttr name : op->getName().getAttributeNames())
    if (std::optional<Attribute> value = op->getInherentAttr(name))
      if (auto type = dyn_cast_if_present<TypeAttr>(*value))
        if (!isBounded(type.getValue()))
          return type.getValue();
  return {};
}

LogicalResult piper::verifyBoundedIntegers(Operation *op) {
  if (Type type = findUnboundedType(op))
    return op->emitOpError("expected a tensor of at most 2^48 elements, got ")
           << type;
  for (NamedAttribute entry : op->getDiscardableAttrs())
    if (std::optional<int64_t> value = findUnbounded(entry.getValue()))
      return op->emitOpError("expected '")
             << entry.getName().getValue() << "' within 2^48, got " << *value;
  for (StringAttr name : op->getName().getAttributeNames())
    if (std::optional<Attribute> value = op->getInherentAttr(name))
      if (std::optional<int64_t> found = findUnbounded(*value))
        return op->emitOpError("expected '")
               << name.getValue() << "' within 2^48, got " << *found;
  return success();
}
