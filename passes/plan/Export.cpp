// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Export.cpp - plan operations to the runtime's records --------------===//

#include "passes/plan/Export.h"
#include "mlir/IR/BuiltinTypes.h"
#include "runtime/plan/Actions.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace piper;

/// `file:line`, or the name of a named location.
static std::string getWhere(Location loc) {
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    return (file.getFilename().getValue() + ":" + Twine(file.getLine())).str();
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  if (auto call = dyn_cast<CallSiteLoc>(loc))
    return getWhere(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string where = getWhere(part); !where.empty())
        return where;
  return "";
}

static std::optional<plan::DType> getDType(Type type) {
  return llvm::TypeSwitch<Type, std::optional<plan::DType>>(type)
      .Case([](Float32Type) { return plan::DType::F32; })
      .Case([](Float64Type) { return plan::DType::F64; })
      .Case([](BFloat16Type) { return plan::DType::BF16; })
      .Case([](Float16Type) { return plan::DType::F16; })
      .Case([](IntegerType type) -> std::optional<plan::DType> {
        switch (type.getWidth()) {
        case 64:
          return plan::DType::I64;
        case 32:
          return plan::DType::I32;
        case 16:
          return plan::DType::I16;
        case 8:
          return plan::DType::I8;
        case 1:
          return plan::DType::I1;
        default:
          return std::nullopt;
        }
      })
      .Default([](Type) { return std::nullopt; });
}

namespace {
class Exporter {
public:
  Exporter(ModuleOp module, const llvm::StringMap<uint64_t> &workspaces)
      : module(module), workspaces(workspaces) {}

  FailureOr<plan::Plan> run();

private:
  LogicalResult exportFlags();
  void exportCommunicators();
  void exportKernels();
  LogicalResult exportHostTensors();
  LogicalResult exportState(PlanStateOp op);
  LogicalResult exportClass(PlanOp op);
  LogicalResult exportEntry(EntryOp op, plan::RankClass &rankClass);
  LogicalResult exportAction(ActionOpInterface op, plan::Action &action);
  /// An action's stream and its place there, by its place in the entry.
  using Places = SmallVector<std::pair<uint32_t, uint64_t>>;
  LogicalResult exportBuffers(EntryOp op, const Places &places,
                              plan::RankClass &rankClass);

  LogicalResult convert(Operation *op, Type type, plan::DType &result);
  LogicalResult convert(Operation *op, AddressAttr address,
                        plan::Address &result);
  LogicalResult convertCommunicator(Operation *op, FlatSymbolRefAttr name,
                                    uint32_t &result);
  LogicalResult convertFlag(Operation *op, StringRef name, uint32_t &result);
  template <typename OpT>
  LogicalResult convertCollective(OpT op, plan::Opcode opcode,
                                  plan::Reduction reduction, uint32_t root,
                                  plan::Action &action);

  ModuleOp module;
  const llvm::StringMap<uint64_t> &workspaces;
  plan::Plan result;
  llvm::DenseMap<Attribute, uint32_t> communicators, kernels, classes;
};
} // namespace

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

LogicalResult Exporter::convert(Operation *op, Type type,
                                plan::DType &converted) {
  std::optional<plan::DType> dtype = getDType(type);
  if (!dtype)
    return op->emitOpError("expected an element type of the runtime, got ")
           << type;
  converted = *dtype;
  return success();
}

LogicalResult Exporter::convertCommunicator(Operation *op,
                                            FlatSymbolRefAttr name,
                                            uint32_t &converted) {
  auto found = communicators.find(name.getAttr());
  if (found == communicators.end())
    return op->emitOpError("expected a piper.plan.communicator, got ") << name;
  converted = found->second;
  return success();
}

LogicalResult Exporter::convertFlag(Operation *op, StringRef name,
                                    uint32_t &converted) {
  for (auto [number, flag] : llvm::enumerate(result.flags))
    if (flag == name) {
      converted = number;
      return success();
    }
  return op->emitOpError("expected a flag of piper.flags, got \"")
         << name << "\"";
}

LogicalResult Exporter::convert(Operation *op, AddressAttr address,
                                plan::Address &converted) {
  if (address.getSpace() == AddressSpace::buffer)
    return op->emitOpError("expected a buffer that memory planning has placed, "
                           "got ")
           << address;
  converted.space = static_cast<plan::Space>(address.getSpace());
  converted.index = address.getIndex();
  converted.offset = address.getOffset();
  converted.stride = address.getStride();
  converted.communicator = -1;
  if (!address.getCommunicator())
    return success();
  uint32_t number;
  if (failed(convertCommunicator(op, address.getCommunicator(), number)))
    return failure();
  converted.communicator = number;
  return success();
}

//===----------------------------------------------------------------------===//
// The cluster
//===----------------------------------------------------------------------===//

LogicalResult Exporter::exportFlags() {
  auto flags = module->getAttrOfType<ArrayAttr>("piper.flags");
  if (!flags)
    return success();
  for (Attribute flag : flags) {
    auto name = dyn_cast<StringAttr>(flag);
    if (!name)
      return module.emitError("expected piper.flags to be names, got ") << flag;
    result.flags.push_back(name.str());
  }
  return success();
}

void Exporter::exportCommunicators() {
  for (auto op : module.getOps<CommunicatorOp>()) {
    communicators[op.getSymNameAttr()] = result.communicators.size();
    plan::Communicator record{op.getSymName().str(), {}};
    for (unsigned i = 0, e = op.getNumGroups(); i < e; ++i)
      record.groups.emplace_back(op.getGroup(i).begin(), op.getGroup(i).end());
    result.communicators.push_back(std::move(record));
  }
}

void Exporter::exportKernels() {
  for (auto op : module.getOps<KernelOp>()) {
    kernels[op.getNameAttr()] = result.kernels.size();
    auto workspace = workspaces.find(op.getName());
    uint64_t bytes =
        workspace == workspaces.end() ? op.getWorkspace() : workspace->second;
    ArrayRef<int64_t> pointers = op.getPointerBytes();
    result.kernels.push_back(
        {op.getName().str(), bytes, {pointers.begin(), pointers.end()}});
  }
}

LogicalResult Exporter::exportHostTensors() {
  for (auto op : module.getOps<PlanInputOp>()) {
    plan::Input record;
    record.name = op.getName().str();
    record.rowBytes = op.getRowBytes();
    record.rows = op.getRows();
    if (failed(convert(op, op.getType(), record.dtype)))
      return failure();
    result.inputs.push_back(record);
  }
  for (auto op : module.getOps<PlanScalarOp>()) {
    plan::Scalar record;
    record.name = op.getName().str();
    record.offset = op.getOffset();
    if (failed(convert(op, op.getType(), record.dtype)))
      return failure();
    result.scalars.push_back(record);
  }
  for (auto op : module.getOps<PlanOutputOp>()) {
    plan::Output record;
    record.name = op.getName().str();
    auto type = cast<RankedTensorType>(op.getType());
    record.shape.assign(type.getShape().begin(), type.getShape().end());
    auto found = classes.find(op.getRankClassAttr().getAttr());
    if (found == classes.end())
      return op.emitOpError("expected a piper.plan, got ")
             << op.getRankClassAttr();
    record.rankClass = found->second;
    if (failed(convert(op, type.getElementType(), record.dtype)) ||
        failed(convert(op, op.getAddress(), record.address)))
      return failure();
    result.outputs.push_back(record);
  }
  return success();
}

LogicalResult Exporter::exportState(PlanStateOp op) {
  plan::State record;
  record.name = op.getName().str();
  record.kind = static_cast<plan::StateKind>(op.getKind());
  auto type = cast<RankedTensorType>(op.getType());
  record.shape.assign(type.getShape().begin(), type.getShape().end());
  if (failed(convert(op, type.getElementType(), record.dtype)))
    return failure();
  for (auto segment : op.getSegments().getAsRange<SegmentAttr>()) {
    plan::StateSegment part;
    auto found = classes.find(segment.getRankClass().getAttr());
    if (found == classes.end())
      return op.emitOpError("expected a piper.plan, got ")
             << segment.getRankClass();
    part.rankClass = found->second;
    part.space = static_cast<plan::Space>(segment.getSpace());
    part.byteOffset = segment.getAt();
    part.elementOffset = segment.getElement();
    part.count = segment.getCount();
    part.elementStride = segment.getStride();
    part.repeat = segment.getRepeat();
    part.repeatStride = segment.getRepeatStride();
    if (segment.getCommunicator()) {
      uint32_t number;
      if (failed(convertCommunicator(op, segment.getCommunicator(), number)))
        return failure();
      part.communicator = number;
    }
    record.segments.push_back(part);
  }
  result.states.push_back(std::move(record));
  return success();
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

template <typename OpT>
LogicalResult Exporter::convertCollective(OpT op, plan::Opcode opcode,
                                          plan::Reduction reduction,
                                          uint32_t root, plan::Action &action) {
  uint32_t communicator;
  plan::DType dtype;
  if (failed(convertCommunicator(op, op.getCommunicatorAttr(), communicator)) ||
      failed(convert(op, op.getType(), dtype)))
    return failure();
  action.opcode = opcode;
  action.imm = {communicator, uint64_t(dtype), op.getCount(),
                uint64_t(reduction), root};
  return success();
}

LogicalResult Exporter::exportAction(ActionOpInterface op,
                                     plan::Action &action) {
  for (AddressAttr address : op.getAddresses())
    if (failed(convert(op, address, action.addresses.emplace_back())))
      return failure();
  if (op.getLabelAttr())
    action.label = op.getLabelAttr().str();
  action.where = getWhere(op.getLoc());
  if (StringAttr when = op.getWhenAttr()) {
    StringRef name = when.getValue();
    bool negated = name.consume_front("!");
    uint32_t flag;
    if (failed(convertFlag(op, name, flag)))
      return failure();
    action.predicate = negated ? plan::whenClear(flag) : plan::whenSet(flag);
  }
  auto message = [&](auto typed, plan::Opcode opcode,
                     uint64_t value) -> LogicalResult {
    uint32_t communicator;
    if (failed(convertCommunicator(typed, typed.getCommunicatorAttr(),
                                   communicator)))
      return failure();
    action.opcode = opcode;
    action.imm = {communicator, value};
    return success();
  };
  auto simple = [&](plan::Opcode opcode, uint64_t value) -> LogicalResult {
    action.opcode = opcode;
    action.imm = {value};
    return success();
  };
  constexpr plan::Reduction sum = plan::Reduction::Sum;
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](LaunchOp launch) -> LogicalResult {
        auto found = kernels.find(launch.getKernelAttr());
        if (found == kernels.end())
          return launch.emitOpError("expected a piper.plan.kernel, got ")
                 << launch.getKernelAttr();
        return simple(plan::Opcode::Launch, found->second);
      })
      .Case([&](CopyOp copy) {
        return simple(plan::Opcode::Copy, copy.getBytes());
      })
      .Case([&](FillZeroOp fill) {
        return simple(plan::Opcode::FillZero, fill.getBytes());
      })
      .Case([&](PlanAccumulateOp sum) -> LogicalResult {
        plan::DType dtype;
        if (failed(convert(sum, sum.getType(), dtype)))
          return failure();
        uint64_t mode = plan::kAccumulateAdd;
        if (sum.getMode() == "write") {
          mode = plan::kAccumulateWrite;
        } else if (sum.getMode() != "add") {
          uint32_t flag;
          if (failed(convertFlag(sum, sum.getMode(), flag)))
            return failure();
          mode = flag;
        }
        action.opcode = plan::Opcode::Accumulate;
        action.imm = {uint64_t(dtype), sum.getCount(), mode};
        return success();
      })
      .Case([&](RecordOp record) {
        return simple(plan::Opcode::Record, record.getEvent());
      })
      .Case([&](WaitOp wait) {
        return simple(plan::Opcode::Wait, wait.getEvent());
      })
      .Case([&](PlanSendOp send) {
        return message(send, plan::Opcode::Send, send.getBytes());
      })
      .Case([&](PlanRecvOp recv) {
        return message(recv, plan::Opcode::Recv, recv.getBytes());
      })
      .Case([&](ReleaseOp release) {
        return message(release, plan::Opcode::Release, release.getMessage());
      })
      .Case([&](PlanAllReduceOp reduce) {
        return convertCollective(
            reduce, plan::Opcode::AllReduce,
            static_cast<plan::Reduction>(reduce.getReduction()), 0, action);
      })
      .Case([&](PlanReduceScatterOp reduce) {
        return convertCollective(
            reduce, plan::Opcode::ReduceScatter,
            static_cast<plan::Reduction>(reduce.getReduction()), 0, action);
      })
      .Case([&](PlanAllGatherOp gather) {
        return convertCollective(gather, plan::Opcode::AllGather, sum, 0,
                                 action);
      })
      .Case([&](PlanBroadcastOp cast) {
        return convertCollective(cast, plan::Opcode::Broadcast, sum,
                                 cast.getRoot(), action);
      })
      .Case([&](PlanAllToAllOp exchange) {
        return convertCollective(exchange, plan::Opcode::AllToAll, sum, 0,
                                 action);
      })
      .Default([](Operation *op) {
        return op->emitOpError("expected an action that the runtime knows");
      });
}

//===----------------------------------------------------------------------===//
// Classes
//===----------------------------------------------------------------------===//

LogicalResult Exporter::exportBuffers(EntryOp op, const Places &places,
                                      plan::RankClass &rankClass) {
  for (auto buffer : op.getBody().front().getOps<BufferOp>()) {
    if (!buffer.getOffset())
      continue;
    uint64_t first = *buffer.getFirst(), last = *buffer.getLast();
    if (first >= places.size() || last >= places.size())
      return buffer.emitOpError("expected a lifetime within ")
             << places.size() << " actions, got " << first << " to " << last;
    auto [begin, end] = std::pair(places[first], places[last]);
    // Of a plan that was imported, whose actions have another order now.
    if (auto known = buffer->getAttrOfType<DenseI64ArrayAttr>("places");
        known && known.size() == 4) {
      begin = {uint32_t(known[0]), uint64_t(known[1])};
      end = {uint32_t(known[2]), uint64_t(known[3])};
    }
    rankClass.buffers.push_back(
        {buffer.getLabel().str(), buffer.getKind().str(),
         uint64_t(*buffer.getOffset()), uint64_t(buffer.getBytes()), first,
         last, begin.first, end.first, begin.second, end.second});
  }
  return success();
}

LogicalResult Exporter::exportEntry(EntryOp op, plan::RankClass &rankClass) {
  llvm::DenseMap<Attribute, unsigned> streams;
  auto parent = op->getParentOfType<PlanOp>();
  for (auto stream : parent.getBody().front().getOps<PlanStreamOp>())
    streams.insert({stream.getNameAttr(), streams.size()});
  plan::StreamActions &lists = rankClass.entries[op.getName().str()];
  lists.resize(rankClass.streams.size());
  Places places;
  for (auto action : op.getBody().front().getOps<ActionOpInterface>()) {
    unsigned stream = streams.lookup(action.getStreamAttr());
    places.push_back({stream, lists[stream].size()});
    plan::Action &record = lists[stream].emplace_back();
    if (failed(exportAction(action, record)))
      return failure();
    if (record.opcode == plan::Opcode::Launch) {
      uint64_t &bytes = rankClass.streams[stream].workspaceBytes;
      bytes = std::max(bytes, result.kernels[record.imm[0]].workspaceBytes);
    }
  }
  return op.getName() == "step" ? exportBuffers(op, places, rankClass)
                                : success();
}

LogicalResult Exporter::exportClass(PlanOp op) {
  plan::RankClass record;
  record.ranks.assign(op.getRanks().begin(), op.getRanks().end());
  record.arenaBytes = op.getArena();
  record.stateBytes = op.getState();
  record.scalarBytes = op.getScalar();
  record.peakBytes = op.getPeak();
  record.numEvents = op.getEvents();
  for (auto stream : op.getBody().front().getOps<PlanStreamOp>())
    record.streams.push_back({stream.getName().str(),
                              uint64_t(stream.getWorkspace()),
                              uint32_t(stream.getCores())});
  for (auto entry : op.getBody().front().getOps<EntryOp>())
    if (failed(exportEntry(entry, record)))
      return failure();
  result.worldSize += record.ranks.size();
  result.classes.push_back(std::move(record));
  return success();
}

FailureOr<plan::Plan> Exporter::run() {
  if (failed(exportFlags()))
    return failure();
  exportCommunicators();
  exportKernels();
  for (auto op : module.getOps<PlanOp>())
    classes.insert({op.getSymNameAttr(), classes.size()});
  if (failed(exportHostTensors()))
    return failure();
  for (auto op : module.getOps<PlanStateOp>())
    if (failed(exportState(op)))
      return failure();
  for (auto op : module.getOps<PlanOp>())
    if (failed(exportClass(op)))
      return failure();
  std::string error;
  if (!plan::validate(result, error)) {
    module.emitError("invalid plan: ") << error;
    return failure();
  }
  return std::move(result);
}

FailureOr<plan::Plan>
piper::exportPlan(ModuleOp module,
                  const llvm::StringMap<uint64_t> &workspaces) {
  return Exporter(module, workspaces).run();
}

SmallVector<StringAttr> piper::getKernelNames(ModuleOp module) {
  SmallVector<StringAttr> names;
  for (auto kernel : module.getOps<KernelOp>())
    names.push_back(kernel.getNameAttr());
  return names;
}
