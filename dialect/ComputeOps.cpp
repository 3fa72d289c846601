// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- ComputeOps.cpp - the global training graph -------------------------===//

#include "dialect/PiperDialect.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

static LogicalResult verifyMicrobatch(Operation *op, int64_t microbatch,
                                      int64_t numMicrobatches) {
  if (microbatch >= 0 && microbatch < numMicrobatches)
    return success();
  return op->emitOpError("expected a microbatch from 0 to below ")
         << numMicrobatches << ", got " << microbatch;
}

LogicalResult ReturnOp::verify() {
  Type f32 = Float32Type::get(getContext());
  SmallVector<Type> scalars(2, RankedTensorType::get({}, f32));
  Type packed = RankedTensorType::get({2}, f32);
  if (getOperandTypes() == TypeRange(scalars) ||
      getOperandTypes() == TypeRange(packed))
    return success();
  return emitOpError(
             "expected (tensor<f32>, tensor<f32>) or (tensor<2xf32>), got (")
         << getOperandTypes() << ")";
}

LogicalResult InputOp::verify() {
  if (!getSplit() && (getMicrobatch() != 0 || getNumMicrobatches() != 1))
    return emitOpError("expected microbatch 0 of 1 for a value that is not "
                       "split, got ")
           << getMicrobatch() << " of " << getNumMicrobatches();
  return verifyMicrobatch(*this, getMicrobatch(), getNumMicrobatches());
}

LogicalResult ComputeOp::verify() {
  return verifyMicrobatch(*this, getMicrobatch(), getNumMicrobatches());
}

LogicalResult AccumulateOp::verify() {
  if (getContributions().empty())
    return emitOpError("expected at least one contribution");
  for (Value contribution : getContributions())
    if (contribution.getType() != getResult().getType())
      return emitOpError("expected contributions of the result's type ")
             << getResult().getType() << ", got " << contribution.getType();
  return success();
}

LogicalResult PackOp::verify() {
  if (getBucketAttr()) {
    if (!getStatesAttr() || getStatesAttr().size() != getParts().size())
      return emitOpError("expected one part per state, got ")
             << getParts().size() << " parts and "
             << (getStatesAttr() ? getStatesAttr().size() : 0) << " states";
    return success();
  }
  for (Value part : getParts())
    if (cast<RankedTensorType>(part.getType()).getRank() != 0)
      return emitOpError("expected scalars where no bucket is given, got ")
             << part.getType();
  return success();
}

LogicalResult UnpackOp::verify() {
  if (getFlat().getType().getRank() != 1)
    return emitOpError("expected a flat vector, got ") << getFlat().getType();
  return success();
}

LogicalResult UpdateOp::verify() {
  if (static_cast<bool>(getScale()) != static_cast<bool>(getUpdated()))
    return emitOpError("expected scale and a result together, got only ")
           << (getScale() ? "scale" : "a result");
  return success();
}
