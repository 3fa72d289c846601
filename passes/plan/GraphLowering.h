// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GraphLowering.h - one graph to the actions of all classes *- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_GRAPHLOWERING_H
#define PIPER_PASSES_PLAN_GRAPHLOWERING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/plan/RankView.h"
#include "llvm/ADT/StringSet.h"

namespace piper {

/// What the graphs of a module share.
struct PlanContext {
  mlir::ModuleOp module;
  const mlir::SymbolTable &symbols;
  RankClasses &classes;
  Communicators &communicators;
  /// For kernels and inputs.
  mlir::OpBuilder builder;
  /// Bytes of the scalar area where [loss_sum, weight_sum] of a run lie.
  int64_t lossOffset = 0;
  /// Where each optimizer's scalars begin.
  llvm::DenseMap<mlir::StringAttr, int64_t> scalarOffsets;
  llvm::StringSet<> kernels;
};

/// Walks a graph once and appends, for every operation, the actions of each
/// class that takes part. Values without a place of their own (inputs, reads,
/// parts of a flat vector) are resolved to addresses where they are used.
class GraphLowering {
public:
  GraphLowering(PlanContext &context, GraphOp graph,
                llvm::MutableArrayRef<RankView> views);

  mlir::LogicalResult run();

private:
  mlir::LogicalResult lower(mlir::Operation *op);
  mlir::LogicalResult lowerCompute(ComputeOp op, RankView &view);
  mlir::LogicalResult lowerSend(SendOp op, RankView &view);
  mlir::LogicalResult lowerRecv(RecvOp op, RankView &view);
  mlir::LogicalResult lowerAllReduce(AllReduceOp op, RankView &view);
  mlir::LogicalResult lowerReduceScatter(ReduceScatterOp op, RankView &view);
  mlir::LogicalResult lowerAllGather(AllGatherOp op, RankView &view);
  mlir::LogicalResult lowerBroadcast(BroadcastOp op, RankView &view);
  mlir::LogicalResult lowerAllToAll(AllToAllOp op, RankView &view);
  mlir::LogicalResult lowerUpdate(UpdateOp op, RankView &view);
  mlir::LogicalResult lowerWrite(WriteOp op, RankView &view);

  // Values (Values.cpp).
  std::optional<Held> resolve(mlir::Value value, RankView &view,
                              const ActionSite &site,
                              mlir::DenseI64ArrayAttr group);
  template <typename OpT>
  mlir::FailureOr<Held> resolveShared(OpT op, RankView &view,
                                      const ActionSite &site);
  std::optional<Held> resolveInput(InputOp op, RankView &view,
                                   mlir::DenseI64ArrayAttr group);
  std::optional<Held> resolveUnpack(UnpackOp op, RankView &view,
                                    const ActionSite &site,
                                    mlir::DenseI64ArrayAttr group);
  Held packValue(PackOp op, RankView &view, const ActionSite &site,
                 mlir::DenseI64ArrayAttr group);
  void fillMissing(PackOp op, RankView &view, const ActionSite &site,
                   llvm::SmallVector<std::pair<int64_t, int64_t>> covered);
  Held getFlat(PackOp op, RankView &view);
  std::optional<Held> getPartHome(AccumulateOp op, RankView &view);
  Accumulator &getAccumulator(AccumulateOp op, RankView &view);
  void produce(mlir::Value value, Held held, RankView &view,
               const ActionSite &site);
  bool isHere(mlir::DenseI64ArrayAttr group, RankView &view);
  bool isMadeHere(mlir::Value value, RankView &view);

  Accumulator *getSumThatBegins(mlir::OpResult result, RankView &view);
  void emitLaunch(mlir::StringAttr kernel,
                  llvm::ArrayRef<mlir::Attribute> pointers,
                  llvm::ArrayRef<std::pair<mlir::OpResult, unsigned>> tensors,
                  RankView &view, ActionSite site);
  AddressAttr getResultHome(mlir::OpResult result, int64_t bytes,
                            llvm::StringRef kind, RankView &view,
                            const ActionSite &site);
  mlir::LogicalResult prepareChannels();
  mlir::LogicalResult checkOrderOfMessages();
  void orderTokens(SchedulableOpInterface op, RankView &view,
                   const ActionSite &site);
  void addKernel(llvm::StringRef name, mlir::func::FuncOp function);
  mlir::FailureOr<int64_t> createInput(InputOp op);
  ActionSite getSite(mlir::Operation *op);

  PlanContext &context;
  GraphOp graph;
  llvm::MutableArrayRef<RankView> views;
  mlir::FlatSymbolRefAttr computeStream;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  llvm::DenseMap<mlir::Operation *, mlir::FlatSymbolRefAttr> channels;
};

/// `F stage=0 MB=3`.
std::string getLabel(ComputeOp op);

} // namespace piper

#endif // PIPER_PASSES_PLAN_GRAPHLOWERING_H
