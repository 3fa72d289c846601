//===- PiperKernelOps.cpp - Calls into the kernel library -----------------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LibraryKernels.h"
#include "dialect/PiperDialect.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace piper;

using EffectList =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

/// On memrefs: `inputs` are read and `outputs` written. On tensors: no effect.
static void addEffects(EffectList &effects, MutableOperandRange inputs,
                       MutableOperandRange outputs, bool readsOutputs) {
  for (OpOperand &operand : inputs)
    if (isa<MemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  for (OpOperand &operand : outputs) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (readsOutputs)
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
    effects.emplace_back(MemoryEffects::Write::get(), &operand);
  }
}

//===----------------------------------------------------------------------===//
// GemmOp
//===----------------------------------------------------------------------===//

void GemmOp::getEffects(EffectList &effects) {
  addEffects(effects, getLhsMutable(), getOutputMutable(), getAccumulate());
  addEffects(effects, getRhsMutable(), {getOperation(), 0, 0}, false);
}

LogicalResult GemmOp::verify() {
  auto lhs = cast<ShapedType>(getLhs().getType());
  auto rhs = cast<ShapedType>(getRhs().getType());
  auto output = cast<ShapedType>(getOutput().getType());
  bool onTensors = isa<RankedTensorType>(output);
  for (ShapedType type : {lhs, rhs, output}) {
    if (!type.hasRank() || !type.hasStaticShape())
      return emitOpError("expected operands with a static shape, got ") << type;
    if (isa<RankedTensorType>(type) != onTensors)
      return emitOpError("expected all operands to be tensors or all to be "
                         "memrefs");
  }
  if (getNumResults() != (onTensors ? 1u : 0u) ||
      (onTensors && getResult().getTypes().front() != output))
    return emitOpError("expected one result of the type of the output on "
                       "tensors and none on memrefs");
  Type element = lhs.getElementType(), result = output.getElementType();
  if (rhs.getElementType() != element ||
      (!result.isF32() && (!element.isBF16() || getAccumulate())))
    return emitOpError("expected operands of one type and an output of f32 (or "
                       "of bf16 where they are and it does not accumulate), "
                       "got ")
           << element << " times " << rhs.getElementType() << " into "
           << result;
  int64_t rank = output.getRank();
  if (rank < 2 || rank > 3 || lhs.getRank() != rank || rhs.getRank() != rank)
    return emitOpError("expected operands of one rank, 2 or 3, got ranks ")
           << lhs.getRank() << ", " << rhs.getRank() << " and " << rank;
  auto dim = [&](ShapedType type, bool transposed, int64_t position) {
    return type.getDimSize(rank - 2 + (transposed ? 1 - position : position));
  };
  bool batchesAgree = rank == 2 || (lhs.getDimSize(0) == output.getDimSize(0) &&
                                    rhs.getDimSize(0) == output.getDimSize(0));
  if (!batchesAgree ||
      dim(lhs, getTransposeLhs(), 0) != dim(output, false, 0) ||
      dim(rhs, getTransposeRhs(), 1) != dim(output, false, 1) ||
      dim(lhs, getTransposeLhs(), 1) != dim(rhs, getTransposeRhs(), 0))
    return emitOpError("expected shapes of a matrix product, got ")
           << lhs << " times " << rhs << " into " << output;
  return success();
}

//===----------------------------------------------------------------------===//
// LibraryCallOp
//===----------------------------------------------------------------------===//

void LibraryCallOp::getEffects(EffectList &effects) {
  addEffects(effects, getInputsMutable(), getOutputsMutable(), false);
}

SmallVector<int64_t> LibraryCallOp::getImmediates() {
  SmallVector<int64_t> immediates(getParams());
  if (std::optional<APFloat> scale = getScale())
    immediates.push_back(llvm::bit_cast<int64_t>(scale->convertToDouble()));
  return immediates;
}

/// Number of elements that `extents` (names of params or numbers) stand for.
static int64_t evaluate(StringRef extents, ArrayRef<StringRef> names,
                        ArrayRef<int64_t> params) {
  int64_t product = 1;
  for (StringRef extent : llvm::split(extents, ' ')) {
    int64_t value = 0;
    if (extent.getAsInteger(10, value))
      value = params[llvm::find(names, extent) - names.begin()];
    product *= value;
  }
  return product;
}

/// What the sizes must fulfil beyond the numbers of elements.
static LogicalResult verifyParams(LibraryCallOp op, ArrayRef<StringRef> names) {
  auto param = [&](StringRef name) -> std::optional<int64_t> {
    auto *at = llvm::find(names, name);
    if (at == names.end())
      return std::nullopt;
    return op.getParams()[at - names.begin()];
  };
  for (auto [name, value] : llvm::zip(names, op.getParams()))
    if (value < 0 && name != "padding_idx")
      return op.emitOpError("expected param ")
             << name << " not to be negative, got " << value;
  if (auto keyHeads = param("Hk"))
    if (*keyHeads == 0 || *param("H") % *keyHeads != 0)
      return op.emitOpError("expected the number of heads to be a multiple of "
                            "that of key heads, got ")
             << *param("H") << " and " << *keyHeads;
  if (auto taken = param("k"))
    if (*taken > *param("N"))
      return op.emitOpError("expected k to be at most N, got ")
             << *taken << " and " << *param("N");
  return success();
}

static LogicalResult verifyOperands(LibraryCallOp op, StringRef kind,
                                    TypeRange types,
                                    ArrayRef<KernelOperand> expected,
                                    ArrayRef<StringRef> names) {
  if (types.size() != expected.size())
    return op.emitOpError("expected ")
           << expected.size() << " " << kind << "s of '" << op.getSymbol()
           << "', got " << types.size();
  for (auto [index, type, spec] : llvm::enumerate(types, expected)) {
    auto shaped = dyn_cast<ShapedType>(type);
    if (!shaped || !shaped.hasRank() || !shaped.hasStaticShape())
      return op.emitOpError("expected ")
             << kind << " " << index << " to have a static shape, got " << type;
    std::string element;
    llvm::raw_string_ostream(element) << shaped.getElementType();
    if (element != spec.elementType)
      return op.emitOpError("expected ")
             << kind << " " << index << " to have element type "
             << spec.elementType << ", got " << type;
    int64_t count = evaluate(spec.extents, names, op.getParams());
    if (shaped.getNumElements() != count)
      return op.emitOpError("expected ")
             << kind << " " << index << " to have " << count << " elements ("
             << spec.extents << "), got " << type;
  }
  return success();
}

LogicalResult LibraryCallOp::verify() {
  const KernelSignature *signature = findKernelSignature(getSymbol());
  if (!signature)
    return emitOpError("expected a symbol of the kernel library, got '")
           << getSymbol() << "'";
  SmallVector<StringRef> names;
  llvm::SplitString(signature->params, names, " ");
  if (getParams().size() != names.size())
    return emitOpError("expected ")
           << names.size() << " params (" << signature->params << "), got "
           << getParams().size();
  if (getScale().has_value() != signature->hasScale)
    return emitOpError("expected ")
           << (signature->hasScale ? "a scale" : "no scale") << " for '"
           << getSymbol() << "'";
  if (failed(verifyParams(*this, names)) ||
      failed(verifyOperands(*this, "input", getInputs().getTypes(),
                            signature->inputs, names)))
    return failure();

  bool onMemRefs = getNumResults() == 0;
  for (Value value : llvm::concat<Value>(SmallVector<Value>(getInputs()),
                                         SmallVector<Value>(getOutputs())))
    if (isa<MemRefType>(value.getType()) != onMemRefs)
      return emitOpError("expected tensor operands and results, or memref "
                         "operands and no results");
  if (!onMemRefs && !getOutputs().empty() &&
      getOutputs().getTypes() != getResultTypes())
    return emitOpError("expected outs of the types of the results");
  return verifyOperands(*this, onMemRefs ? "output" : "result",
                        onMemRefs ? TypeRange(getOutputs().getTypes())
                                  : TypeRange(getResultTypes()),
                        signature->outputs, names);
}
