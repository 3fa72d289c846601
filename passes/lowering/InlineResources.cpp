// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- InlineResources.cpp - dense_resource constants become dense --------===//

#include "passes/Passes.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;

namespace piper {
#define GEN_PASS_DEF_INLINERESOURCES
#include "passes/Passes.h.inc"

namespace {
/// The value of an element of `type` at `data`, least significant byte first.
Attribute readElement(Type type, const char *data) {
  unsigned width = type.isInteger(1) ? 8 : type.getIntOrFloatBitWidth();
  uint64_t bits = 0;
  memcpy(&bits, data, width / 8);
  if (type.isInteger(1))
    return IntegerAttr::get(type, bits & 1);
  if (auto floating = dyn_cast<FloatType>(type))
    return FloatAttr::get(
        type, APFloat(floating.getFloatSemantics(), APInt(width, bits)));
  return IntegerAttr::get(type, APInt(width, bits));
}

bool isReadable(Type type) {
  if (!type.isIntOrFloat())
    return false;
  unsigned width = type.getIntOrFloatBitWidth();
  return type.isInteger(1) || (width % 8 == 0 && width <= 64);
}

/// Null if the data are missing or have another size than the type says.
DenseElementsAttr inlined(DenseResourceElementsAttr attribute) {
  ShapedType type = attribute.getType();
  AsmResourceBlob *blob = attribute.getRawHandle().getBlob();
  if (!blob || !isReadable(type.getElementType()))
    return {};
  ArrayRef<char> data = blob->getData();
  int64_t count = type.getNumElements();
  int64_t bytes = type.getElementType().isInteger(1)
                      ? 1
                      : type.getElementTypeBitWidth() / 8;
  if (static_cast<int64_t>(data.size()) != count * bytes)
    return {};
  SmallVector<Attribute> elements;
  elements.reserve(count);
  for (int64_t index = 0; index < count; ++index)
    elements.push_back(
        readElement(type.getElementType(), data.data() + index * bytes));
  return DenseElementsAttr::get(type, elements);
}

struct InlineResources : public impl::InlineResourcesBase<InlineResources> {
  void runOnOperation() override {
    Operation *user = nullptr;
    bool failed = false;
    AttrTypeReplacer replacer;
    replacer.addReplacement(
        [&](DenseResourceElementsAttr attribute) -> Attribute {
          if (DenseElementsAttr dense = inlined(attribute))
            return dense;
          user->emitError("expected the data of resource '")
              << attribute.getRawHandle().getKey() << "' to fill "
              << attribute.getType() << ", got "
              << (attribute.getRawHandle().getBlob() ? "another size" : "none");
          failed = true;
          return attribute;
        });
    getOperation().walk([&](Operation *op) {
      user = op;
      replacer.replaceElementsIn(op);
    });
    if (failed)
      signalPassFailure();
  }
};
} // namespace
} // namespace piper
