// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- BufferizationModels.cpp - how kernel ops bufferize -----------------===//

#include "dialect/PiperDialect.h"
#include "passes/lowering/Lowering.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace piper;

namespace {
/// Rows with unit stride, a constant distance apart: what GEMM can address.
bool isRowMajor(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)) ||
      llvm::any_of(strides, ShapedType::isDynamic))
    return false;
  size_t rank = strides.size();
  return rank >= 2 && strides[rank - 1] == 1 &&
         strides[rank - 2] >= type.getDimSize(rank - 1);
}

/// One dense block, at any offset: what library functions take.
bool isDense(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return false;
  int64_t expected = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    if (type.getDimSize(dim) != 1 && strides[dim] != expected)
      return false;
    expected *= type.getDimSize(dim);
  }
  return true;
}

/// Buffers of one op, with dense stand-ins for those it can't address.
class Buffers {
public:
  Buffers(RewriterBase &rewriter, Location loc,
          const BufferizationOptions &options, BufferizationState &state)
      : rewriter(rewriter), loc(loc), options(options), state(state) {}

  FailureOr<Value> get(Value tensor, function_ref<bool(MemRefType)> accepts,
                       bool read, bool written) {
    FailureOr<Value> buffer = getBuffer(rewriter, tensor, options, state);
    if (failed(buffer))
      return failure();
    originals.push_back(*buffer);
    auto type = cast<MemRefType>(buffer->getType());
    if (accepts(type))
      return *buffer;
    FailureOr<Value> dense = options.createAlloc(
        rewriter, loc, MemRefType::get(type.getShape(), type.getElementType()),
        {});
    if (failed(dense) ||
        (read && failed(options.createMemCpy(rewriter, loc, *buffer, *dense))))
      return failure();
    if (written)
      copiesBack.push_back({*dense, *buffer});
    return *dense;
  }

  /// After the op: what was written to a stand-in goes to the real buffer.
  LogicalResult copyBack() {
    for (auto [from, to] : copiesBack)
      if (failed(options.createMemCpy(rewriter, loc, from, to)))
        return failure();
    return success();
  }

  SmallVector<Value> originals;

private:
  RewriterBase &rewriter;
  Location loc;
  const BufferizationOptions &options;
  BufferizationState &state;
  SmallVector<std::pair<Value, Value>> copiesBack;
};

struct GemmModel : DstBufferizableOpInterfaceExternalModel<GemmModel, GemmOp> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    auto gemm = cast<GemmOp>(op);
    return !gemm.isDpsInit(&operand) || gemm.getAccumulate();
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto gemm = cast<GemmOp>(op);
    Buffers buffers(rewriter, op->getLoc(), options, state);
    auto lhs = buffers.get(gemm.getLhs(), isRowMajor, true, false);
    auto rhs = buffers.get(gemm.getRhs(), isRowMajor, true, false);
    auto output =
        buffers.get(gemm.getOutput(), isRowMajor, gemm.getAccumulate(), true);
    if (failed(lhs) || failed(rhs) || failed(output))
      return failure();
    GemmOp::create(rewriter, op->getLoc(), TypeRange(), *lhs, *rhs, *output,
                   gemm.getTransposeLhs(), gemm.getTransposeRhs(),
                   gemm.getAccumulate());
    if (failed(buffers.copyBack()))
      return failure();
    replaceOpWithBufferizedValues(rewriter, op, buffers.originals[2]);
    return success();
  }
};

struct LibraryCallModel
    : BufferizableOpInterface::ExternalModel<LibraryCallModel, LibraryCallOp> {
  static bool isOutput(Operation *op, OpOperand &operand) {
    return operand.getOperandNumber() >=
           cast<LibraryCallOp>(op).getInputs().size();
  }

  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return !isOutput(op, operand);
  }

  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return isOutput(op, operand);
  }

  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (!isOutput(op, operand))
      return {};
    size_t inputs = cast<LibraryCallOp>(op).getInputs().size();
    return {{op->getResult(operand.getOperandNumber() - inputs),
             BufferRelation::Equivalent}};
  }

  bool bufferizesToAllocation(Operation *op, Value) const {
    return cast<LibraryCallOp>(op).getOutputs().empty();
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto call = cast<LibraryCallOp>(op);
    Buffers buffers(rewriter, op->getLoc(), options, state);
    SmallVector<Value> inputs, outputs;
    for (Value input : call.getInputs()) {
      auto buffer = buffers.get(input, isDense, true, false);
      if (failed(buffer))
        return failure();
      inputs.push_back(*buffer);
    }
    for (Value output : call.getOutputs()) {
      auto buffer = buffers.get(output, isDense, false, true);
      if (failed(buffer))
        return failure();
      outputs.push_back(*buffer);
    }
    SmallVector<Value> results = llvm::to_vector(
        llvm::drop_begin(buffers.originals, call.getInputs().size()));
    if (call.getOutputs().empty()) {
      for (Type type : call.getResultTypes()) {
        auto tensor = cast<RankedTensorType>(type);
        FailureOr<Value> buffer = options.createAlloc(
            rewriter, op->getLoc(),
            MemRefType::get(tensor.getShape(), tensor.getElementType()), {});
        if (failed(buffer))
          return failure();
        outputs.push_back(*buffer);
      }
      results = outputs;
    }
    LibraryCallOp::create(rewriter, op->getLoc(), TypeRange(), call.getSymbol(),
                          inputs, outputs, call.getParams(),
                          call.getScaleAttr());
    if (failed(buffers.copyBack()))
      return failure();
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }
};
} // namespace

void piper::registerBufferizationModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, PiperDialect *) {
    GemmOp::attachInterface<GemmModel>(*context);
    LibraryCallOp::attachInterface<LibraryCallModel>(*context);
  });
}
