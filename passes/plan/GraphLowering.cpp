// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- GraphLowering.cpp - operations to actions --------------------------===//

#include "passes/plan/GraphLowering.h"
#include "passes/plan/Sizes.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace piper;

GraphLowering::GraphLowering(PlanContext &context, GraphOp graph,
                             MutableArrayRef<RankView> views)
    : context(context), graph(graph), views(views),
      computeStream(FlatSymbolRefAttr::get(graph.getContext(), "compute")) {
  for (Operation &op : graph.getBody().front())
    positions.insert({&op, positions.size()});
}

static std::string printTags(StringRef prefix, DictionaryAttr tags) {
  std::string text = prefix.str();
  llvm::raw_string_ostream os(text);
  for (NamedAttribute tag : tags) {
    os << (text.empty() ? "" : " ") << tag.getName().getValue();
    if (auto index = dyn_cast<IntegerAttr>(tag.getValue()))
      os << '=' << index.getInt();
  }
  return text;
}

std::string piper::getLabel(ComputeOp op) {
  return printTags(stringifyPassKind(op.getPass()), op.getTags());
}

ActionSite GraphLowering::getSite(Operation *op) {
  ActionSite site{op->getLoc(), computeStream, {}, "", positions.lookup(op)};
  if (auto schedulable = dyn_cast<SchedulableOpInterface>(op))
    if (schedulable.getStreamAttr())
      site.stream = schedulable.getStreamAttr();
  // Each channel is received on a stream of its own: as early as the memory is
  // free, and whoever waits for one message holds up neither a send nor what
  // another rank has sent.
  if (auto recv = dyn_cast<RecvOp>(op))
    site.stream = channels.lookup(recv.getMessage().getDefiningOp<SendOp>());
  return site;
}

LogicalResult GraphLowering::run() {
  if (failed(prepareChannels()))
    return failure();
  for (Operation &op : graph.getBody().front())
    if (failed(lower(&op)))
      return failure();
  return success();
}

/// Finds the channel of every message. A channel delivers in order, so receives
/// stand in the order of their sends: others would deadlock on one stream.
LogicalResult GraphLowering::prepareChannels() {
  for (auto send : graph.getBody().front().getOps<SendOp>()) {
    if (!send.getRanksAttr() || !send.getStreamAttr())
      return send.emitOpError("expected ranks and a stream in the scheduled "
                              "phase");
    if (!send.getMessage().hasOneUse())
      return send.emitOpError("expected one receive");
    auto recv = cast<RecvOp>(*send.getMessage().user_begin());
    if (recv.getRanksAttr() != send.getToAttr()) {
      InFlightDiagnostic error =
          recv.emitOpError("expected the ranks that the message is sent to, ")
          << send.getToAttr() << ", got " << recv.getRanksAttr();
      error.attachNote(send.getLoc()) << "sent here";
      return error;
    }
    channels[send] = context.communicators.getChannel(
        send.getLoc(), send.getRanksAttr(), send.getToAttr(),
        send.getStreamAttr());
  }
  return checkOrderOfMessages();
}

/// Receives of one channel stand in the order of their sends.
LogicalResult GraphLowering::checkOrderOfMessages() {
  llvm::DenseMap<Attribute, RecvOp> last;
  for (auto send : graph.getBody().front().getOps<SendOp>()) {
    auto recv = cast<RecvOp>(*send.getMessage().user_begin());
    RecvOp &previous = last[channels.lookup(send)];
    if (previous && recv->isBeforeInBlock(previous)) {
      InFlightDiagnostic error = recv.emitOpError(
          "expected receives in the order of their sends, got one before that "
          "of an earlier message");
      error.attachNote(previous.getLoc()) << "the receive of the earlier one";
      return error;
    }
    previous = recv;
  }
  return success();
}

/// Order that data does not give. On one stream the order of actions is it.
void GraphLowering::orderTokens(SchedulableOpInterface op, RankView &view,
                                const ActionSite &site) {
  for (Value token : op.getAfter()) {
    Operation *before = view.lastActions.lookup(token.getDefiningOp());
    if (before &&
        cast<ActionOpInterface>(before).getStreamAttr() != site.stream)
      view.order(before, site);
  }
}

LogicalResult GraphLowering::lower(Operation *op) {
  auto forEach = [&](auto typed, auto lowerOne) -> LogicalResult {
    auto schedulable = cast<SchedulableOpInterface>(op);
    if (!schedulable.getRanksAttr())
      return op->emitOpError("expected ranks in the scheduled phase");
    for (int64_t number :
         context.classes.getClassesOf(schedulable.getRanksAttr())) {
      RankView &view = views[number];
      orderTokens(schedulable, view, getSite(op));
      if (failed((this->*lowerOne)(typed, view)))
        return failure();
      if (!schedulable.getToken().use_empty())
        view.lastActions[op] = view.getLastAction();
    }
    return success();
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ComputeOp op) {
        return forEach(op, &GraphLowering::lowerCompute);
      })
      .Case([&](SendOp op) { return forEach(op, &GraphLowering::lowerSend); })
      .Case([&](RecvOp op) { return forEach(op, &GraphLowering::lowerRecv); })
      .Case([&](AllReduceOp op) {
        return forEach(op, &GraphLowering::lowerAllReduce);
      })
      .Case([&](ReduceScatterOp op) {
        return forEach(op, &GraphLowering::lowerReduceScatter);
      })
      .Case([&](AllGatherOp op) {
        return forEach(op, &GraphLowering::lowerAllGather);
      })
      .Case([&](BroadcastOp op) {
        return forEach(op, &GraphLowering::lowerBroadcast);
      })
      .Case([&](AllToAllOp op) {
        return forEach(op, &GraphLowering::lowerAllToAll);
      })
      .Case(
          [&](UpdateOp op) { return forEach(op, &GraphLowering::lowerUpdate); })
      .Case([&](WriteOp op) -> LogicalResult {
        for (RankView &view : views)
          if (failed(lowerWrite(op, view)))
            return failure();
        return success();
      })
      .Case([&](ReturnOp op) -> LogicalResult {
        if (op.getValues().size() != 1)
          return op.emitOpError("expected one packed value in the scheduled "
                                "phase, got ")
                 << op.getValues().size();
        // Where nothing reduces it, nobody has asked for the pair yet.
        for (RankView &view : views)
          if (isMadeHere(op.getValues()[0], view))
            resolve(op.getValues()[0], view, getSite(op), {});
        return success();
      })
      // Contributions are added where they are made, the rest is addresses.
      .Case<AccumulateOp, InputOp, ReadOp, UnpackOp, PackOp>(
          [](auto) { return success(); })
      .Default([](Operation *op) {
        return op->emitOpError("expected an operation of the scheduled phase");
      });
}

//===----------------------------------------------------------------------===//
// Compute
//===----------------------------------------------------------------------===//

void GraphLowering::addKernel(StringRef name, func::FuncOp function) {
  if (!context.kernels.insert(name).second)
    return;
  SmallVector<int64_t> bytes;
  std::string access;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    bytes.push_back(getBytes(cast<ShapedType>(type)));
    bool isUpdated =
        isa<MemRefType>(type) || function.getArgAttr(i, kDonatedAttr);
    access += isUpdated ? 'x' : 'r';
  }
  for (Type type : function.getResultTypes()) {
    bytes.push_back(getBytes(cast<ShapedType>(type)));
    access += 'w';
  }
  KernelOp::create(context.builder, function.getLoc(), name, bytes, access, 0);
}

/// A gradient that earlier runs may have left a sum of is made beside it and
/// added, unless the run starts afresh: then the kernel writes it in place,
/// which saves a pass over it. `tensors` are results with the numbers of their
/// pointers.
void GraphLowering::emitLaunch(StringAttr kernel, ArrayRef<Attribute> pointers,
                               ArrayRef<std::pair<OpResult, unsigned>> tensors,
                               RankView &view, ActionSite site) {
  SmallVector<Attribute> inPlace(pointers);
  for (auto [result, pointer] : tensors) {
    Accumulator *sum = getSumThatBegins(result, view);
    if (!sum || sum->firstMode != "fresh")
      continue;
    inPlace[pointer] = sum->home.address;
    view.writtenIfFresh.insert(result);
  }
  Builder &builder = view.builder;
  if (ArrayRef<Attribute>(inPlace) != pointers) {
    site.when = builder.getStringAttr("fresh");
    view.emit<LaunchOp>(site, kernel, builder.getArrayAttr(inPlace));
    site.when = builder.getStringAttr("!fresh");
  }
  view.emit<LaunchOp>(site, kernel, builder.getArrayAttr(pointers));
}

LogicalResult GraphLowering::lowerCompute(ComputeOp op, RankView &view) {
  ArrayRef<int64_t> ranks = *op.getRanks();
  if (!op.getFunctions() || !op.getVariants() ||
      op.getVariants()->size() != ranks.size())
    return op.emitOpError("expected a function for each rank, as "
                          "piper-specialize gives");
  int64_t position = llvm::find(ranks, view.getFirstRank()) - ranks.begin();
  auto name = cast<FlatSymbolRefAttr>(
      (*op.getFunctions())[(*op.getVariants())[position]]);
  auto function = context.symbols.lookup<func::FuncOp>(name.getAttr());
  auto chunk = context.symbols.lookup<ChunkOp>(op.getCalleeAttr().getAttr());
  if (!function || !chunk)
    return op.emitOpError("expected a chunk and a function, got ")
           << op.getCalleeAttr() << " and " << name;
  addKernel(name.getValue(), function);
  ActionSite site = getSite(op);
  site.label = getLabel(op);

  SmallVector<Attribute> pointers;
  for (Value operand : op.getInputs()) {
    std::optional<Held> held = resolve(operand, view, site, op.getRanksAttr());
    if (!held) {
      InFlightDiagnostic error =
          op.emitOpError("expected every operand on rank ")
          << view.getFirstRank() << ", got one that only other ranks have";
      error.attachNote(operand.getLoc()) << "made here";
      return error;
    }
    if (!isa<BundleType>(operand.getType()))
      pointers.push_back(held->address);
    for (auto [offset, bytes] : held->members)
      pointers.push_back(held->address.advance(offset));
  }
  if (pointers.size() != function.getNumArguments())
    return op.emitOpError("expected ")
           << function.getNumArguments() << " arguments of " << name << ", got "
           << pointers.size();

  // Results get their memory first: sums they go into may be made by it.
  SmallVector<std::pair<Value, Held>> results;
  SmallVector<std::pair<OpResult, unsigned>> tensors;
  unsigned next = 0;
  for (auto [result, count] :
       llvm::zip(op.getOutputs(), chunk.getResultCounts())) {
    Held held;
    ArrayRef<Type> types = function.getResultTypes().slice(next, count);
    next += count;
    if (!isa<BundleType>(result.getType())) {
      held.bytes = getBytes(cast<ShapedType>(types[0]));
      held.address = getResultHome(
          cast<OpResult>(result), held.bytes,
          op.getPass() == PassKind::F ? "activation" : "gradient", view, site);
      tensors.push_back({cast<OpResult>(result), pointers.size()});
      pointers.push_back(held.address);
    } else if (count > 0) {
      for (Type type : types) {
        held.bytes = alignBytes(held.bytes);
        held.members.push_back({held.bytes, getBytes(cast<ShapedType>(type))});
        held.bytes += held.members.back().second;
      }
      held.address =
          view.createBuffer(op.getLoc(), held.bytes, "saved", site.label);
      for (auto [offset, bytes] : held.members)
        pointers.push_back(held.address.advance(offset));
    }
    results.push_back({result, held});
  }
  emitLaunch(view.builder.getStringAttr(name.getValue()), pointers, tensors,
             view, site);
  for (auto &[value, held] : results)
    produce(value, held, view, site);
  return success();
}
