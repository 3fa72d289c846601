// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ComputeOps.cpp - inputs and calls of chunks ------------------------===//

#include "dialect/Verification.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>

using namespace mlir;
using namespace piper;

LogicalResult InputOp::verify() {
  if (!getSplit() && (getMicrobatch() != 0 || getNumMicrobatches() != 1))
    return emitOpError("expected microbatch 0 of 1 where split is absent, got ")
           << getMicrobatch() << " of " << getNumMicrobatches();
  if (getSplit() && getResult().getType().getRank() == 0)
    return emitOpError("expected a dimension 0 to split, got ")
           << getResult().getType();
  return verifyMicrobatch(*this, getMicrobatch(), getNumMicrobatches());
}

//===----------------------------------------------------------------------===//
// ComputeOp
//===----------------------------------------------------------------------===//

LogicalResult ComputeOp::verify() {
  if (failed(verifyTags(*this, getTags())) ||
      failed(verifyMicrobatch(*this, getMicrobatch(), getNumMicrobatches())))
    return failure();
  if (static_cast<bool>(getFunctions()) != static_cast<bool>(getVariants()))
    return emitOpError("expected functions and variants together, got only ")
           << (getFunctions() ? "functions" : "variants");
  if (!getVariants())
    return success();
  size_t numRanks = getRanks() ? getRanks()->size() : 1;
  if (getVariants()->size() != numRanks)
    return emitOpError("expected one variant per rank, got ")
           << getVariants()->size() << " of " << numRanks << " ranks";
  int64_t numFunctions = getFunctions()->size();
  llvm::ArrayRef<int64_t> variants = *getVariants();
  for (int64_t variant : variants)
    if (variant < 0 || variant >= numFunctions)
      return emitOpError("expected variants from 0 to ")
             << numFunctions - 1 << ", got " << variant;
  return success();
}

namespace {
/// One side of a call: the node's types, and what each stands for.
struct Side {
  StringRef what;
  TypeRange types;
  ArrayRef<int64_t> counts;
  /// The types on this side of every member function.
  SmallVector<ArrayRef<Type>> members;
};
} // namespace

static int64_t sum(ArrayRef<int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

static bool agreesInKind(RankedTensorType a, RankedTensorType b) {
  return a.getRank() == b.getRank() && a.getElementType() == b.getElementType();
}

/// A `?` agrees with any extent.
static bool agrees(RankedTensorType a, RankedTensorType b) {
  return agreesInKind(a, b) &&
         succeeded(verifyCompatibleShape(a.getShape(), b.getShape()));
}

static LogicalResult verifySide(ComputeOp compute, ChunkOp chunk,
                                const Side &side) {
  if (side.types.size() != side.counts.size())
    return withNote(compute.emitOpError("expected ")
                        << side.counts.size() << " " << side.what << "s, got "
                        << side.types.size(),
                    chunk, "the chunk is here");
  size_t position = 0;
  for (auto [index, type, count] : llvm::enumerate(side.types, side.counts)) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor && !isa<BundleType>(type))
      return compute.emitOpError("expected ")
             << side.what << " " << index
             << " to be a ranked tensor or a bundle, got " << type;
    if (tensor && count != 1)
      return withNote(compute.emitOpError("expected ")
                          << side.what << " " << index << " to be a bundle of "
                          << count << " values, got " << type,
                      chunk, "the chunk is here");
    if (tensor)
      for (ArrayRef<Type> member : side.members)
        if (!agrees(tensor, cast<RankedTensorType>(member[position])))
          return withNote(compute.emitOpError("expected ")
                              << side.what << " " << index << " to agree with "
                              << member[position] << ", got " << type,
                          chunk, "the chunk is here");
    position += count;
  }
  return success();
}

/// The compute whose result `value` is, through any transfers, and which
/// result it is.
static std::pair<ComputeOp, unsigned> findProducer(Value value) {
  while (auto recv = value.getDefiningOp<RecvOp>())
    value = recv.getMessage().getDefiningOp<SendOp>().getOperand();
  if (auto compute = value.getDefiningOp<ComputeOp>())
    return {compute, cast<OpResult>(value).getResultNumber()};
  return {};
}

/// The part of `types` that operand or result `index` stands for.
static ArrayRef<Type> slice(ArrayRef<Type> types, ArrayRef<int64_t> counts,
                            unsigned index) {
  return types.slice(sum(counts.take_front(index)), counts[index]);
}

/// The types of the chunk's members, or nothing where a function is missing
/// or does not fit the counts: the chunk's own verifier reports that.
static SmallVector<FunctionType>
getMemberTypes(ChunkOp chunk, SymbolTableCollection &symbols) {
  SmallVector<FunctionType> types;
  for (FlatSymbolRefAttr reference : chunk.getFunctions()) {
    auto function =
        symbols.lookupNearestSymbolFrom<func::FuncOp>(chunk, reference);
    if (!function)
      return {};
    FunctionType type = function.getFunctionType();
    if (type.getNumInputs() != sum(chunk.getOperandCounts()) ||
        type.getNumResults() != sum(chunk.getResultCounts()) ||
        !llvm::all_of(type.getInputs(), llvm::IsaPred<RankedTensorType>) ||
        !llvm::all_of(type.getResults(), llvm::IsaPred<RankedTensorType>))
      return {};
    types.push_back(type);
  }
  return types;
}

/// A bundle holds what its maker says.
static LogicalResult verifyBundles(ComputeOp compute, ChunkOp chunk,
                                   FunctionType function,
                                   SymbolTableCollection &symbols) {
  for (auto [index, input] : llvm::enumerate(compute.getInputs())) {
    if (!isa<BundleType>(input.getType()))
      continue;
    auto [producer, result] = findProducer(input);
    if (!producer)
      return compute.emitOpError("expected operand ")
             << index << " to be a bundle that a piper.compute makes";
    auto maker = symbols.lookupNearestSymbolFrom<ChunkOp>(
        producer, producer.getCalleeAttr());
    SmallVector<FunctionType> made;
    if (maker)
      made = getMemberTypes(maker, symbols);
    if (made.empty() || result >= maker.getResultCounts().size())
      continue; // the producer's own verifier reports it
    ArrayRef<Type> has =
        slice(made[0].getResults(), maker.getResultCounts(), result);
    ArrayRef<Type> wants =
        slice(function.getInputs(), chunk.getOperandCounts(), index);
    if (has.size() != wants.size())
      return withNote(compute.emitOpError("expected operand ")
                          << index << " to hold " << wants.size()
                          << " values, got " << has.size(),
                      producer, "the bundle is made here");
    for (auto [got, expected] : llvm::zip(has, wants))
      if (!agreesInKind(cast<RankedTensorType>(got),
                        cast<RankedTensorType>(expected)))
        return withNote(compute.emitOpError("expected operand ")
                            << index << " to hold " << expected << ", got "
                            << got,
                        producer, "the bundle is made here");
  }
  return success();
}

LogicalResult ComputeOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto chunk = lookupSymbol<ChunkOp>(*this, getCalleeAttr(), symbols);
  if (!chunk || failed(verifySymbol<StreamOp>(*this, getStreamAttr(), symbols)))
    return failure();
  if (chunk.getPass() != getPass())
    return withNote(emitOpError("expected pass ")
                        << stringifyPassKind(chunk.getPass())
                        << " of the chunk, got "
                        << stringifyPassKind(getPass()),
                    chunk, "the chunk is here");
  if (getFunctions()) {
    SmallVector<FlatSymbolRefAttr> members = chunk.getFunctions();
    for (Attribute function : getFunctions()->getValue())
      if (!llvm::is_contained(members, function))
        return withNote(emitOpError("expected members of the chunk, got ")
                            << function,
                        chunk, "the chunk is here");
  }
  SmallVector<FunctionType> members = getMemberTypes(chunk, symbols);
  if (members.empty())
    return success();
  Side operands{
      "operand", getInputs().getTypes(), chunk.getOperandCounts(), {}};
  Side results{"result", getOutputs().getTypes(), chunk.getResultCounts(), {}};
  for (FunctionType type : members) {
    operands.members.push_back(type.getInputs());
    results.members.push_back(type.getResults());
  }
  if (failed(verifySide(*this, chunk, operands)) ||
      failed(verifySide(*this, chunk, results)))
    return failure();
  return verifyBundles(*this, chunk, members[0], symbols);
}
