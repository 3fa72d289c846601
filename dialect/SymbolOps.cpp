// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- SymbolOps.cpp - mesh, state and optimizers -------------------------===//

#include "dialect/Verification.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace piper;

/// The first string that stands in `strings` twice, or null.
static StringAttr findDuplicate(ArrayAttr strings) {
  llvm::SmallDenseSet<Attribute> seen;
  for (auto name : strings.getAsRange<StringAttr>())
    if (!seen.insert(name).second)
      return name;
  return {};
}

//===----------------------------------------------------------------------===//
// MeshOp
//===----------------------------------------------------------------------===//

MeshOp MeshOp::lookup(Operation *op) {
  auto module =
      isa<ModuleOp>(op) ? cast<ModuleOp>(op) : op->getParentOfType<ModuleOp>();
  if (!module)
    return {};
  auto meshes = module.getOps<MeshOp>();
  return meshes.empty() ? MeshOp() : *meshes.begin();
}

int64_t MeshOp::getNumRanks() {
  int64_t numRanks = 1;
  for (int64_t extent : getShape())
    numRanks *= extent;
  return numRanks;
}

LogicalResult MeshOp::verify() {
  if (getAxes().empty())
    return emitOpError("expected at least one axis, got []");
  if (getAxes().size() != getShape().size())
    return emitOpError("expected one extent per axis, got ")
           << getShape().size() << " extents of " << getAxes().size()
           << " axes";
  if (StringAttr axis = findDuplicate(getAxes()))
    return emitOpError("expected distinct axes, got ") << axis << " twice";
  int64_t numRanks = 1;
  for (auto [axis, extent] : llvm::zip(getAxes(), getShape())) {
    if (cast<StringAttr>(axis).empty())
      return emitOpError("expected every axis to have a name, got \"\"");
    if (extent < 1)
      return emitOpError("expected an extent of at least 1 for axis ")
             << axis << ", got " << extent;
    if (llvm::MulOverflow(numRanks, extent, numRanks) ||
        numRanks > std::numeric_limits<int32_t>::max())
      return emitOpError("expected at most 2147483647 ranks, got more");
  }
  return verifyOnlyOne(*this);
}

//===----------------------------------------------------------------------===//
// StateOp
//===----------------------------------------------------------------------===//

LogicalResult StateOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape() || !type.getElementType().isIntOrFloat())
    return emitOpError("expected a ranked tensor of static shape and of "
                       "integers or floating-point numbers, got ")
           << getType();
  if (getTrainable() && getKind() != StateKind::parameter)
    return emitOpError("expected only a parameter to be trainable, got a ")
           << stringifyStateKind(getKind());
  if (getTrainable() && !isa<FloatType>(type.getElementType()))
    return emitOpError("expected a trainable parameter of floating-point "
                       "type, got ")
           << type.getElementType();
  if (getNames().empty() || getNames()[0] != getSymNameAttr())
    return emitOpError("expected names to start with ")
           << getSymNameAttr() << ", got " << getNames();
  if (StringAttr name = findDuplicate(getNames()))
    return emitOpError("expected distinct names, got ") << name << " twice";
  return success();
}

//===----------------------------------------------------------------------===//
// OptimizerOp
//===----------------------------------------------------------------------===//

/// What `torch.optim` calls the moments of a rule; nothing for other rules.
static ArrayRef<StringRef> getSlotNames(StringRef rule) {
  static constexpr StringRef sgd[] = {"momentum_buffer"};
  static constexpr StringRef adam[] = {"exp_avg", "exp_avg_sq",
                                       "max_exp_avg_sq"};
  return llvm::StringSwitch<ArrayRef<StringRef>>(rule)
      .Case("sgd", sgd)
      .Cases({"adam", "adamw"}, adam)
      .Default({});
}

LogicalResult OptimizerOp::verify() {
  ArrayRef<StringRef> known = getSlotNames(getRule());
  if (known.empty())
    return emitOpError("expected the rule sgd, adam or adamw, got ")
           << getRuleAttr();
  for (auto slot : getSlots().getAsRange<StringAttr>())
    if (!llvm::is_contained(known, slot.getValue())) {
      InFlightDiagnostic error = emitOpError("expected the slots of ")
                                 << getRule() << ", ";
      llvm::interleaveComma(known, error);
      return error << ", got " << slot;
    }
  if (StringAttr slot = findDuplicate(getSlots()))
    return emitOpError("expected distinct slots, got ") << slot << " twice";
  if (StringAttr scalar = findDuplicate(getScalars()))
    return emitOpError("expected distinct scalars, got ") << scalar << " twice";
  for (auto scalar : getScalars().getAsRange<StringAttr>())
    if (scalar.empty())
      return emitOpError("expected every scalar to have a name, got \"\"");
  for (NamedAttribute entry : getConfig())
    if (!isa<IntegerAttr, FloatAttr>(entry.getValue()))
      return emitOpError("expected numbers and booleans in config, got ")
             << entry.getName() << " = " << entry.getValue();
  return success();
}
