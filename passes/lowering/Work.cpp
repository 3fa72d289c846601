// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Work.cpp - how much a function computes ----------------------------===//

#include "passes/lowering/Work.h"
#include "dialect/PiperDialect.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace piper;

/// Multiply-adds of a matrix product run about this much faster than the
/// iterations of a loop over elements, which wait for memory.
static constexpr double productSpeed = 8;

static double countElements(TypeRange types) {
  double elements = 0;
  for (Type type : types)
    if (auto shaped = dyn_cast<ShapedType>(type);
        shaped && shaped.hasStaticShape())
      elements += static_cast<double>(shaped.getNumElements());
  return elements;
}

static double estimateLoops(linalg::LinalgOp op) {
  double iterations = 1;
  for (int64_t range : op.getStaticLoopRanges())
    if (!ShapedType::isDynamic(range))
      iterations *= static_cast<double>(range);
  bool isProduct = op.getNumReductionLoops() > 0 && op.getNumDpsInputs() > 1;
  return isProduct ? iterations / productSpeed : iterations;
}

static double estimateCall(LibraryCallOp op) {
  double elements = countElements(op->getOperandTypes()) +
                    countElements(op->getResultTypes());
  // Scores and their products with values: two products of queries, keys and
  // head dimension forward, five backward, of which a causal mask leaves half.
  double products = op.getSymbol() == "attention_forward"    ? 2
                    : op.getSymbol() == "attention_backward" ? 5
                                                             : 0;
  if (products == 0)
    return elements;
  ArrayRef<int64_t> params = op.getParams(); // B H Hk T S D causal
  double multiplyAdds = products * params[0] * params[1] * params[3] *
                        params[4] * params[5] / (params[6] ? 2 : 1);
  return elements + multiplyAdds / productSpeed;
}

std::optional<double> piper::estimateWork(func::FuncOp function) {
  if (!function || function.isExternal())
    return std::nullopt;
  double work = 0;
  function.walk([&](Operation *op) {
    if (auto structured = dyn_cast<linalg::LinalgOp>(op))
      work += estimateLoops(structured);
    else if (auto call = dyn_cast<LibraryCallOp>(op))
      work += estimateCall(call);
    else if (isa<func::CallOp>(op))
      work += countElements(op->getOperandTypes()) +
              countElements(op->getResultTypes());
  });
  return work;
}
