// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GraphOp.cpp - one DAG for the whole cluster ------------------------===//

#include "dialect/Verification.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace piper;

static LogicalResult reportSecond(Operation *second, Operation *first,
                                  const Twine &expected) {
  return withNote(second->emitOpError("expected ")
                      << expected << ", got a second",
                  first, "the first is here");
}

static LogicalResult verifySameInput(InputOp input, InputOp first) {
  if (input.getName() == first.getName() &&
      input.getSplit() == first.getSplit())
    return success();
  return withNote(input.emitOpError("expected inputs of index ")
                      << input.getIndex() << " to agree in name and split, got "
                      << input.getNameAttr() << " and " << first.getNameAttr(),
                  first, "the first is here");
}

/// What holds between operations, in one walk.
LogicalResult GraphOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 0)
    return emitOpError("expected a block without arguments, got ")
           << block.getNumArguments();
  if (!isa<ReturnOp>(block.back()))
    return emitOpError("expected to end in piper.return, got ")
           << block.back().getName();
  llvm::DenseMap<Attribute, InputOp> inputs;
  llvm::DenseMap<Attribute, Operation *> writes;
  llvm::DenseMap<std::pair<Attribute, Attribute>, Operation *> sums;
  for (Operation &op : block) {
    if (auto input = dyn_cast<InputOp>(op)) {
      InputOp first =
          inputs.try_emplace(input.getIndexAttr(), input).first->second;
      if (failed(verifySameInput(input, first)))
        return failure();
    } else if (auto write = dyn_cast<WriteOp>(op)) {
      auto [entry, isNew] = writes.try_emplace(write.getTargetAttr(), write);
      if (!isNew)
        return reportSecond(write, entry->second,
                            "one write of @" + write.getTarget());
    } else if (auto sum = dyn_cast<AccumulateOp>(op); sum && sum.getState()) {
      auto [entry, isNew] =
          sums.try_emplace({sum.getStateAttr(), sum.getRanksAttr()}, sum);
      if (!isNew)
        return reportSecond(sum, entry->second,
                            "one accumulate of @" + *sum.getState() +
                                " per device group");
    }
  }
  return success();
}

/// Groups are checked here and not by each operation, so that a group costs
/// once whatever the number of operations on it.
LogicalResult GraphOp::verifySymbolUses(SymbolTableCollection &) {
  DeviceGroupVerifier groups(MeshOp::lookup(*this));
  for (Operation &op : getBody().front()) {
    DenseI64ArrayAttr ranks, peers;
    if (auto schedulable = dyn_cast<SchedulableOpInterface>(op))
      ranks = schedulable.getRanksAttr();
    if (auto pack = dyn_cast<PackOp>(op))
      ranks = pack.getRanksAttr();
    if (auto send = dyn_cast<SendOp>(op))
      peers = send.getToAttr();
    if (failed(groups.verify(&op, ranks)) || failed(groups.verify(&op, peers)))
      return failure();
    if (ranks && peers && failed(groups.verifyDisjoint(&op, ranks, peers)))
      return failure();
  }
  return success();
}

LogicalResult ReturnOp::verify() {
  Type f32 = Float32Type::get(getContext());
  Type scalar = RankedTensorType::get({}, f32);
  Type packed = RankedTensorType::get({2}, f32);
  TypeRange types = getOperandTypes();
  if (types == TypeRange({packed}))
    return success();
  if (types != TypeRange({scalar, scalar}))
    return emitOpError("expected (tensor<f32>, tensor<f32>) or "
                       "(tensor<2xf32>), got (")
           << types << ")";
  for (Value value : getValues())
    if (failed(verifyExecuted(*this, "a sum", value)))
      return failure();
  return success();
}
