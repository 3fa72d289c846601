// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ChunkOp.cpp - families of functions --------------------------------===//

#include "dialect/BoundedTypes.h"
#include "dialect/Verification.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>
#include <numeric>

using namespace mlir;
using namespace piper;

FlatSymbolRefAttr ChunkOp::lookupMember(int64_t rows) {
  for (auto member : getMembers().getAsRange<DictionaryAttr>()) {
    auto bound =
        member.getAs<DictionaryAttr>("binding").getAs<IntegerAttr>("rows");
    if (bound && bound.getInt() == rows)
      return member.getAs<FlatSymbolRefAttr>("function");
  }
  return {};
}

SmallVector<FlatSymbolRefAttr> ChunkOp::getFunctions() {
  return llvm::map_to_vector(
      getMembers().getAsRange<DictionaryAttr>(), [](DictionaryAttr member) {
        return member.getAs<FlatSymbolRefAttr>("function");
      });
}

static LogicalResult verifyBinding(ChunkOp chunk, DictionaryAttr binding) {
  for (NamedAttribute size : binding) {
    auto value = dyn_cast<IntegerAttr>(size.getValue());
    if (!value || !value.getType().isSignlessInteger(64) || value.getInt() < 1)
      return chunk.emitOpError("expected ")
             << size.getName() << " to be bound to a positive integer, got "
             << size.getValue();
  }
  return success();
}

static bool bindSameNames(DictionaryAttr first, DictionaryAttr second) {
  // Dictionaries are sorted by name.
  return llvm::equal(first, second, [](NamedAttribute a, NamedAttribute b) {
    return a.getName() == b.getName();
  });
}

LogicalResult ChunkOp::verify() {
  if (getMembers().empty())
    return emitOpError("expected at least one member, got []");
  DictionaryAttr first;
  llvm::SmallDenseSet<Attribute> bindings;
  for (auto member : getMembers().getAsRange<DictionaryAttr>()) {
    auto binding = member.getAs<DictionaryAttr>("binding");
    if (!binding || !member.getAs<FlatSymbolRefAttr>("function") ||
        member.size() != 2)
      return emitOpError("expected members {binding = {...}, function = "
                         "@name}, got ")
             << member;
    if (failed(verifyBinding(*this, binding)))
      return failure();
    if (!bindings.insert(binding).second)
      return emitOpError("expected distinct bindings, got ")
             << binding << " twice";
    if (!first)
      first = binding;
    if (!bindSameNames(first, binding))
      return emitOpError("expected bindings of the same names, got ")
             << first << " and " << binding;
  }
  for (ArrayRef<int64_t> counts : {getOperandCounts(), getResultCounts()})
    for (int64_t count : counts)
      if (count < 0 || count > std::numeric_limits<int32_t>::max())
        return emitOpError("expected counts from 0 to 2147483647, got ")
               << count;
  return success();
}

/// As many types as the counts add up to, all ranked tensors.
static LogicalResult verifyTypes(ChunkOp chunk, func::FuncOp function,
                                 StringRef what, ArrayRef<Type> types,
                                 ArrayRef<int64_t> counts) {
  int64_t expected = std::accumulate(counts.begin(), counts.end(), int64_t(0));
  if (static_cast<int64_t>(types.size()) != expected)
    return withNote(chunk.emitOpError("expected functions of ")
                        << expected << " " << what << ", got " << types.size(),
                    function, "the function is here");
  for (Type type : types) {
    if (!isa<RankedTensorType>(type))
      return withNote(chunk.emitOpError("expected ranked tensors as ")
                          << what << ", got " << type,
                      function, "the function is here");
    if (!isBounded(type))
      return withNote(
          chunk.emitOpError("expected tensors of at most 2^48 elements as ")
              << what << ", got " << type,
          function, "the function is here");
  }
  return success();
}

static LogicalResult verifyAgreement(ChunkOp chunk, func::FuncOp first,
                                     func::FuncOp other, StringRef what,
                                     ArrayRef<Type> firstTypes,
                                     ArrayRef<Type> otherTypes) {
  for (auto [index, a, b] : llvm::enumerate(firstTypes, otherTypes)) {
    auto firstType = cast<RankedTensorType>(a);
    auto otherType = cast<RankedTensorType>(b);
    if (firstType.getRank() == otherType.getRank() &&
        firstType.getElementType() == otherType.getElementType())
      continue;
    InFlightDiagnostic error =
        chunk.emitOpError("expected members that agree in rank and element "
                          "type, got ")
        << what << " " << index << " of " << firstType << " and " << otherType;
    error.attachNote(first.getLoc()) << "one member is here";
    error.attachNote(other.getLoc()) << "the other is here";
    return error;
  }
  return success();
}

LogicalResult ChunkOp::verifySymbolUses(SymbolTableCollection &symbols) {
  func::FuncOp first;
  for (FlatSymbolRefAttr reference : getFunctions()) {
    auto function = lookupSymbol<func::FuncOp>(*this, reference, symbols);
    if (!function)
      return failure();
    FunctionType type = function.getFunctionType();
    if (failed(verifyTypes(*this, function, "arguments", type.getInputs(),
                           getOperandCounts())) ||
        failed(verifyTypes(*this, function, "results", type.getResults(),
                           getResultCounts())))
      return failure();
    if (!first)
      first = function;
    FunctionType firstType = first.getFunctionType();
    if (failed(verifyAgreement(*this, first, function, "argument",
                               firstType.getInputs(), type.getInputs())) ||
        failed(verifyAgreement(*this, first, function, "result",
                               firstType.getResults(), type.getResults())))
      return failure();
  }
  return success();
}
