// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Partition.cpp - one plan per class of ranks ------------------------===//

#include "passes/Passes.h"
#include "passes/plan/DataFlow.h"
#include "passes/plan/GraphLowering.h"
#include "passes/plan/Sizes.h"
#include <map>

namespace piper {
#define GEN_PASS_DEF_PARTITION
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

/// Inputs are numbered as the host's flat list of tensors is; numbers that no
/// graph reads get an empty record.
static LogicalResult createInputs(ModuleOp module, OpBuilder &builder) {
  std::map<int64_t, std::pair<InputOp, int64_t>> inputs; // with rows
  for (auto graph : module.getOps<GraphOp>())
    for (auto input : graph.getBody().front().getOps<InputOp>()) {
      if (input.getIndex() < 0)
        return input.emitOpError("expected an index of at least 0, got ")
               << input.getIndex();
      auto type = input.getResult().getType();
      ArrayRef<int64_t> inner = type.getShape();
      if (input.getSplit()) {
        if (inner.empty())
          return input.emitOpError("expected rows to split, got ") << type;
        inner = inner.drop_front();
      }
      if (llvm::any_of(inner, ShapedType::isDynamic))
        return input.emitOpError("expected a shape that is known but for the "
                                 "rows, got ")
               << type;
      inputs.try_emplace(input.getIndex(), input,
                         input.getSplit() ? graph.getRows() : 1);
    }
  int64_t number = 0;
  for (auto &[index, found] : inputs) {
    for (; number < index; ++number)
      PlanInputOp::create(builder, module.getLoc(),
                          "unused." + std::to_string(number),
                          builder.getI8Type(), 1, 0);
    auto [input, rows] = found;
    auto type = input.getResult().getType();
    int64_t bytes = getElementBytes(type.getElementType());
    for (int64_t extent : type.getShape().drop_front(input.getSplit() ? 1 : 0))
      bytes *= extent;
    PlanInputOp::create(builder, input.getLoc(), input.getName(),
                        type.getElementType(), rows, bytes);
    ++number;
  }
  return success();
}

/// The scalar area: what the host writes for each optimizer, then what it
/// reads. Returns its size.
static int64_t createScalars(PlanContext &context) {
  int64_t bytes = 0;
  for (auto optimizer : context.module.getOps<OptimizerOp>()) {
    context.scalarOffsets[optimizer.getSymNameAttr()] = bytes;
    for (Attribute scalar : optimizer.getScalars()) {
      std::string name =
          (optimizer.getSymName() + "." + cast<StringAttr>(scalar).getValue())
              .str();
      PlanScalarOp::create(context.builder, optimizer.getLoc(), name,
                           Type(context.builder.getF32Type()), bytes);
      bytes += sizeof(float);
    }
    bytes = alignBytes(bytes);
  }
  context.lossOffset = bytes;
  return bytes + 2 * sizeof(float);
}

static void createOutputs(PlanContext &context, FlatSymbolRefAttr rankClass) {
  OpBuilder &builder = context.builder;
  Type scalar = RankedTensorType::get({}, builder.getF32Type());
  int64_t offset = context.lossOffset;
  for (StringRef name : {"loss_sum", "weight_sum"}) {
    PlanOutputOp::create(builder, context.module.getLoc(), name, scalar,
                         rankClass.getValue(),
                         AddressAttr::get(builder.getContext(),
                                          AddressSpace::scalar, 0, offset));
    offset += sizeof(float);
  }
}

static void createStreams(PlanContext &context, PlanOp plan,
                          ArrayRef<Attribute> names) {
  auto builder = OpBuilder::atBlockBegin(&plan.getBody().front());
  for (Attribute attribute : names) {
    auto name = cast<FlatSymbolRefAttr>(attribute);
    auto stream = context.symbols.lookup<StreamOp>(name.getAttr());
    int64_t cores = stream ? stream.getSms().value_or(0) : 0;
    PlanStreamOp::create(builder, stream ? stream.getLoc() : plan.getLoc(),
                         name, builder.getI64IntegerAttr(0),
                         builder.getI64IntegerAttr(cores));
  }
}

namespace {
struct Partition : public piper::impl::PartitionBase<Partition> {
  void runOnOperation() override {
    if (failed(partition(getOperation())))
      signalPassFailure();
  }

  LogicalResult partition(ModuleOp module);
};
} // namespace

LogicalResult Partition::partition(ModuleOp module) {
  auto graphs = llvm::to_vector(module.getOps<GraphOp>());
  SymbolTable symbols(module);
  RankClasses classes(module);
  auto builder = OpBuilder::atBlockEnd(module.getBody());
  SmallVector<PlanOp> plans;
  SmallVector<FlatSymbolRefAttr> names;
  for (auto [i, ranks] : llvm::enumerate(classes.getClasses())) {
    std::string name = getFreeName(symbols, "class" + std::to_string(i));
    plans.push_back(
        PlanOp::create(builder, module.getLoc(), name, ranks, 0, 0, 0, 0, 0));
    plans.back().getBody().emplaceBlock();
    names.push_back(FlatSymbolRefAttr::get(&getContext(), name));
  }
  builder.setInsertionPoint(plans.front());
  Communicators communicators(builder, symbols);
  PlanContext context{
      module, SymbolTable(module), classes, communicators, builder, 0, {}, {}};
  SmallVector<StateLayout> layouts;
  for (ArrayRef<int64_t> ranks : classes.getClasses())
    layouts.emplace_back(module, ranks);
  createStates(module, builder, communicators, layouts, names);
  if (failed(createInputs(module, builder)))
    return failure();
  int64_t scalarBytes = createScalars(context);

  SmallVector<llvm::SmallSetVector<Attribute, 4>> streams(plans.size());
  SmallVector<int64_t> events(plans.size(), 0);
  for (GraphOp graph : graphs) {
    std::vector<RankView> views;
    for (auto [plan, layout, ranks] :
         llvm::zip(plans, layouts, classes.getClasses())) {
      auto inPlan = OpBuilder::atBlockEnd(&plan.getBody().front());
      auto entry = EntryOp::create(inPlan, graph.getLoc(), graph.getSymName());
      entry.getBody().emplaceBlock();
      views.emplace_back(entry, ranks, layout, communicators);
    }
    if (failed(GraphLowering(context, graph, views).run()))
      return failure();
    for (auto [i, view] : llvm::enumerate(views)) {
      streams[i].insert_range(view.streams);
      events[i] = std::max(events[i], view.numEvents);
    }
  }

  for (auto [i, plan] : llvm::enumerate(plans)) {
    plan.setState(layouts[i].getBytes());
    plan.setScalar(scalarBytes);
    plan.setEvents(events[i]);
    createStreams(context, plan, streams[i].getArrayRef());
    createOutputs(context, names[i]);
  }
  PlanTables tables(module);
  for (PlanOp plan : plans)
    for (auto entry : plan.getBody().front().getOps<EntryOp>())
      annotateDataFlow(entry, tables);
  for (GraphOp graph : graphs)
    graph.erase();
  module->setAttr("piper.flags", builder.getStrArrayAttr(
                                     {"fresh", "reduce", "update", "buffers"}));
  return success();
}
