// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Import.cpp - the runtime's records to plan operations --------------===//

#include "mlir/IR/Builders.h"
#include "passes/plan/Export.h"
#include "runtime/plan/Actions.h"

using namespace mlir;
using namespace piper;

namespace {
class Importer {
public:
  Importer(const plan::Plan &plan, ModuleOp module)
      : plan(plan), module(module),
        builder(OpBuilder::atBlockEnd(module.getBody())), loc(module.getLoc()) {
  }

  void run();

private:
  void importHostTensors();
  void importState(const plan::State &state);
  void importClass(const plan::RankClass &rankClass, size_t number);
  void importEntry(StringRef name, const plan::RankClass &rankClass,
                   const plan::StreamActions &lists);
  void importAction(const plan::Action &action, FlatSymbolRefAttr stream);
  template <typename OpT, typename... Args>
  void emit(const plan::Action &action, FlatSymbolRefAttr stream,
            Args &&...operands);

  Type convert(plan::DType dtype);
  AddressAttr convert(const plan::Address &address);
  FlatSymbolRefAttr symbol(StringRef name) {
    return FlatSymbolRefAttr::get(builder.getContext(), name);
  }
  FlatSymbolRefAttr getCommunicator(int64_t number) {
    return symbol(plan.communicators[number].name);
  }
  FlatSymbolRefAttr getClassName(size_t number) {
    return symbol("class" + std::to_string(number));
  }
  IntegerAttr integer(uint64_t value) {
    return builder.getI64IntegerAttr(value);
  }

  const plan::Plan &plan;
  ModuleOp module;
  OpBuilder builder;
  Location loc;
};
} // namespace

Type Importer::convert(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
    return builder.getF32Type();
  case plan::DType::F64:
    return builder.getF64Type();
  case plan::DType::BF16:
    return builder.getBF16Type();
  case plan::DType::F16:
    return builder.getF16Type();
  case plan::DType::I1:
    return builder.getI1Type();
  default:
    return builder.getIntegerType(8 * plan::byteWidth(dtype));
  }
}

AddressAttr Importer::convert(const plan::Address &address) {
  FlatSymbolRefAttr communicator;
  if (address.communicator >= 0)
    communicator = getCommunicator(address.communicator);
  return AddressAttr::get(
      builder.getContext(), static_cast<AddressSpace>(address.space),
      address.index, address.offset, communicator, address.stride);
}

static RankedTensorType getTensor(ArrayRef<uint64_t> shape, Type type) {
  SmallVector<int64_t> extents(shape.begin(), shape.end());
  return RankedTensorType::get(extents, type);
}

void Importer::importHostTensors() {
  for (const plan::Input &input : plan.inputs)
    PlanInputOp::create(builder, loc, input.name, convert(input.dtype),
                        input.rows, input.rowBytes);
  for (const plan::Scalar &scalar : plan.scalars)
    PlanScalarOp::create(builder, loc, scalar.name, convert(scalar.dtype),
                         scalar.offset);
  for (const plan::Output &output : plan.outputs)
    PlanOutputOp::create(builder, loc, output.name,
                         getTensor(output.shape, convert(output.dtype)),
                         getClassName(output.rankClass).getValue(),
                         convert(output.address));
}

void Importer::importState(const plan::State &state) {
  SmallVector<Attribute> segments;
  for (const plan::StateSegment &segment : state.segments)
    segments.push_back(SegmentAttr::get(
        builder.getContext(), getClassName(segment.rankClass),
        static_cast<AddressSpace>(segment.space), segment.byteOffset,
        segment.elementOffset, segment.count,
        segment.communicator < 0 ? FlatSymbolRefAttr()
                                 : getCommunicator(segment.communicator),
        segment.elementStride, segment.repeat, segment.repeatStride));
  PlanStateOp::create(builder, loc, state.name,
                      static_cast<PlanStateKind>(state.kind),
                      getTensor(state.shape, convert(state.dtype)),
                      builder.getArrayAttr(segments));
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

/// `file:line` becomes such a location again, anything else a name.
static Location getLocation(StringRef where, Location unknown) {
  if (where.empty())
    return unknown;
  auto [file, line] = where.rsplit(':');
  unsigned number;
  if (!line.getAsInteger(10, number))
    return FileLineColLoc::get(unknown.getContext(), file, number, 0);
  return NameLoc::get(StringAttr::get(unknown.getContext(), where));
}

template <typename OpT, typename... Args>
void Importer::emit(const plan::Action &action, FlatSymbolRefAttr stream,
                    Args &&...operands) {
  StringAttr when, label;
  if (uint32_t flag = action.predicate & ~plan::kPredicateNegated)
    when = builder.getStringAttr(
        (action.predicate & plan::kPredicateNegated ? "!" : "") +
        plan.flags[flag - 1]);
  if (!action.label.empty())
    label = builder.getStringAttr(action.label);
  OpT::create(
      builder, getLocation(action.where, UnknownLoc::get(builder.getContext())),
      std::forward<Args>(operands)..., stream, when, label, IntegerAttr());
}

void Importer::importAction(const plan::Action &action,
                            FlatSymbolRefAttr stream) {
  SmallVector<Attribute> addresses;
  for (const plan::Address &address : action.addresses)
    addresses.push_back(convert(address));
  auto at = [&](size_t i) { return cast<AddressAttr>(addresses[i]); };
  auto imm = [&](size_t i) { return integer(action.imm[i]); };
  auto reduction = [&] {
    return ReductionAttr::get(builder.getContext(),
                              static_cast<Reduction>(action.imm[3]));
  };
  auto type = [&](size_t i) {
    return TypeAttr::get(convert(static_cast<plan::DType>(action.imm[i])));
  };
  auto communicator = [&] { return getCommunicator(action.imm[0]); };
  switch (action.opcode) {
  case plan::Opcode::Launch:
    return emit<LaunchOp>(
        action, stream, builder.getStringAttr(plan.kernels[action.imm[0]].name),
        builder.getArrayAttr(addresses));
  case plan::Opcode::Copy:
    return emit<CopyOp>(action, stream, at(0), at(1), imm(0));
  case plan::Opcode::FillZero:
    return emit<FillZeroOp>(action, stream, at(0), imm(0));
  case plan::Opcode::Accumulate: {
    std::string mode = "add";
    if (action.imm[2] == plan::kAccumulateWrite)
      mode = "write";
    else if (action.imm[2] != plan::kAccumulateAdd)
      mode = plan.flags[action.imm[2]];
    return emit<PlanAccumulateOp>(action, stream, builder.getStringAttr(mode),
                                  at(0), at(1), type(0), imm(1));
  }
  case plan::Opcode::Record:
    return emit<RecordOp>(action, stream, imm(0));
  case plan::Opcode::Wait:
    return emit<WaitOp>(action, stream, imm(0));
  case plan::Opcode::Send:
    return emit<PlanSendOp>(action, stream, at(0), imm(1), communicator());
  case plan::Opcode::Recv:
    return emit<PlanRecvOp>(action, stream, at(0), imm(1), communicator());
  case plan::Opcode::Release:
    return emit<ReleaseOp>(action, stream, imm(1), communicator());
  case plan::Opcode::AllReduce:
    return emit<PlanAllReduceOp>(action, stream, reduction(), at(0), at(1),
                                 type(1), imm(2), communicator());
  case plan::Opcode::ReduceScatter:
    return emit<PlanReduceScatterOp>(action, stream, reduction(), at(0), at(1),
                                     type(1), imm(2), communicator());
  case plan::Opcode::AllGather:
    return emit<PlanAllGatherOp>(action, stream, at(0), at(1), type(1), imm(2),
                                 communicator());
  case plan::Opcode::Broadcast:
    return emit<PlanBroadcastOp>(action, stream, imm(4), at(0), at(1), type(1),
                                 imm(2), communicator());
  case plan::Opcode::AllToAll:
    return emit<PlanAllToAllOp>(action, stream, at(0), at(1), type(1), imm(2),
                                communicator());
  }
}

/// Merges the streams' lists into one order in which a wait follows its record:
/// each stream in turn goes on until it would wait for what is not there yet.
void Importer::importEntry(StringRef name, const plan::RankClass &rankClass,
                           const plan::StreamActions &lists) {
  auto entry = EntryOp::create(builder, loc, name);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&entry.getBody().emplaceBlock());
  if (name == "step")
    for (auto [number, buffer] : llvm::enumerate(rankClass.buffers)) {
      auto op = BufferOp::create(
          builder, loc, integer(number), builder.getStringAttr(buffer.label),
          builder.getStringAttr(buffer.kind), integer(buffer.bytes),
          integer(buffer.offset), integer(buffer.firstAction),
          integer(buffer.lastAction));
      // Lifetimes count in the exporter's order, which the file doesn't tell.
      op->setAttr("places",
                  builder.getDenseI64ArrayAttr(
                      {int64_t(buffer.firstStream), int64_t(buffer.firstIndex),
                       int64_t(buffer.lastStream), int64_t(buffer.lastIndex)}));
    }
  SmallVector<size_t> next(lists.size(), 0);
  llvm::DenseSet<uint64_t> recorded;
  for (bool progress = true; progress;) {
    progress = false;
    for (auto [stream, list] : llvm::enumerate(lists)) {
      FlatSymbolRefAttr streamName = symbol(rankClass.streams[stream].name);
      for (size_t &i = next[stream]; i < list.size(); ++i) {
        if (list[i].opcode == plan::Opcode::Wait &&
            !recorded.contains(list[i].imm[0]))
          break;
        if (list[i].opcode == plan::Opcode::Record)
          recorded.insert(list[i].imm[0]);
        importAction(list[i], streamName);
        progress = true;
      }
    }
  }
}

void Importer::importClass(const plan::RankClass &rankClass, size_t number) {
  SmallVector<int64_t> ranks(rankClass.ranks.begin(), rankClass.ranks.end());
  auto op = PlanOp::create(builder, loc, getClassName(number).getValue(), ranks,
                           rankClass.arenaBytes, rankClass.stateBytes,
                           rankClass.scalarBytes, rankClass.peakBytes,
                           rankClass.numEvents);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&op.getBody().emplaceBlock());
  for (const plan::Stream &stream : rankClass.streams)
    PlanStreamOp::create(builder, loc, symbol(stream.name),
                         integer(stream.workspaceBytes), integer(stream.cores));
  for (const auto &[name, lists] : rankClass.entries)
    importEntry(name, rankClass, lists);
}

void Importer::run() {
  SmallVector<StringRef> flags(plan.flags.begin(), plan.flags.end());
  module->setAttr("piper.flags", builder.getStrArrayAttr(flags));
  module->setAttr("piper.phase", builder.getStringAttr("planned"));
  for (const plan::Communicator &communicator : plan.communicators) {
    SmallVector<Attribute> groups;
    for (const auto &group : communicator.groups)
      groups.push_back(builder.getDenseI64ArrayAttr(
          SmallVector<int64_t>(group.begin(), group.end())));
    CommunicatorOp::create(builder, loc, communicator.name,
                           builder.getArrayAttr(groups));
  }
  for (const plan::Kernel &kernel : plan.kernels) {
    SmallVector<int64_t> bytes(kernel.pointerBytes.begin(),
                               kernel.pointerBytes.end());
    KernelOp::create(builder, loc, kernel.name, bytes, "",
                     kernel.workspaceBytes);
  }
  importHostTensors();
  for (const plan::State &state : plan.states)
    importState(state);
  for (auto [number, rankClass] : llvm::enumerate(plan.classes))
    importClass(rankClass, number);
}

void piper::importPlan(const plan::Plan &plan, ModuleOp module) {
  Importer(plan, module).run();
}
