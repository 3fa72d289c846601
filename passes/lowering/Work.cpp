// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Work.cpp - how much a function computes ----------------------------===//

#include "passes/lowering/Work.h"
#include "dialect/PiperDialect.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace piper;

static double countElements(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && shaped.hasStaticShape()
             ? static_cast<double>(shaped.getNumElements())
             : 0;
}

static double countElements(TypeRange types) {
  double elements = 0;
  for (Type type : types)
    elements += countElements(type);
  return elements;
}

/// An exponential or a sine takes about as long as this many additions.
static constexpr double functionCost = 4;

static double costOfBody(linalg::LinalgOp op) {
  double functions = 0;
  op->walk([&](Operation *inner) {
    functions += isa<math::MathDialect>(inner->getDialect());
  });
  return 1 + functions * functionCost;
}

static Work countLoops(linalg::LinalgOp op) {
  double iterations = 1;
  for (int64_t range : op.getStaticLoopRanges())
    if (!ShapedType::isDynamic(range))
      iterations *= static_cast<double>(range);
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  bool isProduct = succeeded(dims) && !dims->m.empty() && !dims->n.empty() &&
                   !dims->k.empty();
  return isProduct ? Work{iterations, 0} : Work{0, iterations * costOfBody(op)};
}

static Work countGemm(GemmOp op) {
  auto type = cast<ShapedType>(op.getLhs().getType());
  int64_t depth =
      type.getShape()[type.getRank() - (op.getTransposeLhs() ? 2 : 1)];
  return {countElements(op.getOutput().getType()) * static_cast<double>(depth),
          0};
}

static Work countCall(LibraryCallOp op) {
  double elements = countElements(op->getOperandTypes()) +
                    countElements(op->getResultTypes());
  // Scores and their products with values: two products of queries, keys and
  // head dimension forward, five backward, of which a causal mask leaves half.
  double products = op.getSymbol() == "attention_forward"    ? 2
                    : op.getSymbol() == "attention_backward" ? 5
                                                             : 0;
  if (products == 0)
    return {0, elements};
  ArrayRef<int64_t> params = op.getParams(); // B H Hk T S D causal
  double scores =
      static_cast<double>(params[0] * params[1] * params[3] * params[4]) /
      (params[6] ? 2 : 1);
  return {products * scores * params[5], elements + scores * functionCost};
}

static Work countOp(Operation *op) {
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return countLoops(structured);
  if (auto gemm = dyn_cast<GemmOp>(op))
    return countGemm(gemm);
  if (auto call = dyn_cast<LibraryCallOp>(op))
    return countCall(call);
  if (isa<func::CallOp>(op))
    return {0, countElements(op->getOperandTypes()) +
                   countElements(op->getResultTypes())};
  return {};
}

Work piper::countWork(func::FuncOp function) {
  Work work;
  function.walk([&](Operation *op) {
    Work counted = countOp(op);
    work.multiplyAdds += counted.multiplyAdds;
    work.iterations += counted.iterations;
  });
  return work;
}
