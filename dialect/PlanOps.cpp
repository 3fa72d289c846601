// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanOps.cpp - records of a plan ------------------------------------===//

#include "dialect/PiperDialect.h"
#include "dialect/PlanAttrs.h"
#include "llvm/ADT/DenseSet.h"

#include <set>

using namespace mlir;
using namespace piper;

/// The ranks of a list are distinct from each other and from those in `seen`.
static LogicalResult verifyRanks(Operation *op, ArrayRef<int64_t> ranks,
                                 llvm::SmallDenseSet<int64_t> &seen) {
  if (ranks.empty())
    return op->emitOpError("expected at least one rank");
  for (int64_t rank : ranks) {
    if (rank < 0)
      return op->emitOpError("expected ranks of at least 0, got ") << rank;
    if (!seen.insert(rank).second)
      return op->emitOpError("expected distinct ranks, got ")
             << rank << " twice";
  }
  return success();
}

static LogicalResult
verifyNotNegative(Operation *op,
                  ArrayRef<std::pair<StringRef, int64_t>> sizes) {
  for (auto [name, size] : sizes)
    if (size < 0)
      return op->emitOpError("expected ")
             << name << " of at least 0, got " << size;
  return success();
}

static LogicalResult verifyStaticTensor(Operation *op, Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (tensor && tensor.hasStaticShape())
    return success();
  return op->emitOpError("expected a ranked tensor of static shape, got ")
         << type;
}

//===----------------------------------------------------------------------===//
// CommunicatorOp
//===----------------------------------------------------------------------===//

std::optional<std::pair<unsigned, int64_t>>
CommunicatorOp::findPosition(int64_t rank) {
  for (unsigned i = 0, e = getNumGroups(); i < e; ++i) {
    ArrayRef<int64_t> group = getGroup(i);
    const int64_t *found = llvm::find(group, rank);
    if (found != group.end())
      return std::make_pair(i, int64_t(found - group.begin()));
  }
  return std::nullopt;
}

int64_t CommunicatorOp::getMaxGroupSize() {
  int64_t size = 0;
  for (unsigned i = 0, e = getNumGroups(); i < e; ++i)
    size = std::max<int64_t>(size, getGroup(i).size());
  return size;
}

LogicalResult CommunicatorOp::verify() {
  if (getGroups().empty())
    return emitOpError("expected at least one group");
  llvm::SmallDenseSet<int64_t> seen;
  for (Attribute attribute : getGroups()) {
    auto group = dyn_cast<DenseI64ArrayAttr>(attribute);
    if (!group)
      return emitOpError("expected groups to be lists of ranks, got ")
             << attribute;
    if (failed(verifyRanks(*this, group, seen)))
      return failure();
  }
  return success();
}

ParseResult piper::parseGroups(OpAsmParser &parser, ArrayAttr &groups) {
  SmallVector<Attribute> parsed;
  auto parseGroup = [&]() -> ParseResult {
    SmallVector<int64_t> ranks;
    auto parseRank = [&] { return parser.parseInteger(ranks.emplace_back()); };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseRank))
      return failure();
    parsed.push_back(parser.getBuilder().getDenseI64ArrayAttr(ranks));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseGroup))
    return failure();
  groups = parser.getBuilder().getArrayAttr(parsed);
  return success();
}

void piper::printGroups(OpAsmPrinter &printer, Operation *, ArrayAttr groups) {
  printer << '[';
  llvm::interleaveComma(groups.getAsRange<DenseI64ArrayAttr>(), printer,
                        [&](DenseI64ArrayAttr group) {
                          printer << '[';
                          llvm::interleaveComma(group.asArrayRef(), printer);
                          printer << ']';
                        });
  printer << ']';
}

//===----------------------------------------------------------------------===//
// Kernels, states, inputs, scalars, outputs
//===----------------------------------------------------------------------===//

LogicalResult KernelOp::verify() {
  for (int64_t bytes : getPointerBytes())
    if (failed(verifyNotNegative(*this, {{"pointer bytes", bytes}})))
      return failure();
  if (!getAccess().empty() && getAccess().size() != getPointerBytes().size())
    return emitOpError("expected one access letter per pointer, got ")
           << getAccess().size() << " letters and " << getPointerBytes().size()
           << " pointers";
  if (getAccess().find_first_not_of("rwx") != StringRef::npos)
    return emitOpError("expected access letters r, w and x, got \"")
           << getAccess() << "\"";
  return verifyNotNegative(*this, {{"workspace", getWorkspace()}});
}

LogicalResult PlanStateOp::verify() {
  if (failed(verifyStaticTensor(*this, getType())))
    return failure();
  for (Attribute attribute : getSegments()) {
    auto segment = dyn_cast<SegmentAttr>(attribute);
    if (!segment)
      return emitOpError("expected segments, got ") << attribute;
    if (segment.getSpace() != AddressSpace::arena &&
        segment.getSpace() != AddressSpace::state)
      return emitOpError("expected a segment in the arena or state space, got ")
             << stringifyAddressSpace(segment.getSpace());
    if (segment.getCount() <= 0 || segment.getRepeat() <= 0)
      return emitOpError("expected positive counts, got ") << segment;
  }
  return success();
}

LogicalResult PlanInputOp::verify() {
  if (int64_t(getRows()) <= 0)
    return emitOpError("expected at least one row, got ") << int64_t(getRows());
  return verifyNotNegative(*this, {{"row bytes", getRowBytes()}});
}

LogicalResult PlanScalarOp::verify() {
  Type type = getType();
  if (!type.isF32() && !type.isF64() && !type.isSignlessInteger(32) &&
      !type.isSignlessInteger(64))
    return emitOpError("expected f32, f64, i32 or i64, got ") << type;
  int64_t width = type.getIntOrFloatBitWidth() / 8;
  if (int64_t(getOffset()) < 0 || getOffset() % width != 0)
    return emitOpError("expected an offset that is a multiple of ")
           << width << ", got " << int64_t(getOffset());
  return success();
}

LogicalResult PlanOutputOp::verify() {
  return verifyStaticTensor(*this, getType());
}

//===----------------------------------------------------------------------===//
// PlanOp and what it holds
//===----------------------------------------------------------------------===//

static LogicalResult verifyEntry(PlanOp plan, EntryOp entry,
                                 const llvm::DenseSet<StringAttr> &streams) {
  llvm::DenseSet<int64_t> recorded;
  for (Operation &op : entry.getBody().front()) {
    auto action = dyn_cast<ActionOpInterface>(op);
    if (!action)
      continue;
    if (!streams.contains(action.getStreamAttr().getAttr()))
      return op.emitOpError("expected a stream of the class, got ")
             << action.getStreamAttr();
    auto event = op.getAttrOfType<IntegerAttr>("event");
    if (!event)
      continue;
    int64_t number = event.getInt();
    if (number < 0 || number >= plan.getEvents())
      return op.emitOpError("expected an event below ")
             << plan.getEvents() << ", got " << number;
    if (isa<RecordOp>(op) && !recorded.insert(number).second)
      return op.emitOpError("expected one record of event ") << number;
    if (isa<WaitOp>(op) && !recorded.contains(number))
      return op.emitOpError("expected a record of event ")
             << number << " before its wait";
  }
  return success();
}

LogicalResult PlanOp::verify() {
  llvm::SmallDenseSet<int64_t> seen;
  if (failed(verifyRanks(*this, getRanks(), seen)) ||
      failed(verifyNotNegative(*this, {{"arena", getArena()},
                                       {"state", getState()},
                                       {"scalar", getScalar()},
                                       {"peak", getPeak()},
                                       {"events", getEvents()}})))
    return failure();
  if (getPeak() > getArena())
    return emitOpError("expected a peak of at most ")
           << getArena() << ", got " << getPeak();
  llvm::DenseSet<StringAttr> streams, entries;
  for (Operation &op : getBody().front()) {
    if (auto stream = dyn_cast<PlanStreamOp>(op)) {
      if (!streams.insert(stream.getNameAttr().getAttr()).second)
        return op.emitOpError("expected distinct streams");
    } else if (auto entry = dyn_cast<EntryOp>(op)) {
      if (!entries.insert(entry.getNameAttr()).second)
        return op.emitOpError("expected distinct entries");
      if (failed(verifyEntry(*this, entry, streams)))
        return failure();
    } else {
      return op.emitOpError("expected streams and entries only");
    }
  }
  return success();
}

LogicalResult PlanStreamOp::verify() {
  return verifyNotNegative(
      *this, {{"workspace", getWorkspace()}, {"cores", getCores()}});
}

LogicalResult EntryOp::verify() {
  // Not a hash table of LLVM's, in which some numbers are reserved: the buffers
  // themselves are verified after this.
  std::set<int64_t> numbers;
  for (Operation &op : getBody().front()) {
    auto buffer = dyn_cast<BufferOp>(op);
    if (!buffer && !isa<ActionOpInterface>(op))
      return op.emitOpError("expected buffers and actions only");
    if (buffer && !numbers.insert(buffer.getNumber()).second)
      return op.emitOpError("expected distinct buffer numbers, got ")
             << buffer.getNumber() << " twice";
  }
  return success();
}

LogicalResult BufferOp::verify() {
  if (int64_t(getNumber()) < 0 || int64_t(getBytes()) <= 0)
    return emitOpError("expected a number of at least 0 and positive bytes");
  bool placed = getOffset().has_value();
  if (placed != getFirst().has_value() || placed != getLast().has_value())
    return emitOpError("expected offset, first and last together");
  if (!placed)
    return success();
  int64_t offset = *getOffset(), first = *getFirst(), last = *getLast();
  if (offset < 0 || first < 0 || last < first)
    return emitOpError("expected 0 <= first <= last, got ")
           << first << " and " << last;
  return success();
}
