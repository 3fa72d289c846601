// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- DataFlow.cpp - who wrote what an action reads ----------------------===//

#include "passes/plan/DataFlow.h"
#include "passes/plan/Segments.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace piper;

namespace {
struct Writer {
  int64_t position;
  int64_t operand;
  /// Where the write began.
  int64_t begin;
  StringAttr when;
};

/// Who wrote each byte last. An action with a condition leaves what was there
/// in runs in which it does not happen.
class Writers {
public:
  explicit Writers(const PlanTables &tables) : tables(tables) {}

  /// Sources of an action; then notes what it writes.
  SmallVector<int64_t> visit(ActionOpInterface action);
  SmallVector<int64_t> getResults() const;

private:
  using List = SmallVector<Writer, 2>;
  struct Segment {
    int64_t end;
    List writers;
  };
  using Space = Segments<Segment>;

  static void write(Space &space, const Access &access, const Writer &writer);
  static void append(SmallVector<int64_t> &sources, ArrayRef<Writer> writers,
                     int64_t at);

  int64_t getPosition(ActionOpInterface action, ArrayRef<int64_t> sources);

  const PlanTables &tables;
  std::map<std::pair<AddressSpace, int64_t>, Space> spaces;
  /// First position of gathers that are alike.
  std::map<std::vector<int64_t>, int64_t> gathers;
};
} // namespace

/// The position that stands for what an action writes. To gather a shard again
/// that nothing has written in between gives what the first time gave.
int64_t Writers::getPosition(ActionOpInterface action,
                             ArrayRef<int64_t> sources) {
  int64_t position =
      action.getPositionAttr() ? action.getPositionAttr().getInt() : -1;
  auto gather = dyn_cast<PlanAllGatherOp>(*action);
  if (!gather || gather.getSrc().getSpace() != AddressSpace::state)
    return position;
  std::vector<int64_t> key(sources.begin(), sources.end());
  for (Attribute part :
       {Attribute(gather.getSrc()), Attribute(gather.getCommunicatorAttr()),
        Attribute(gather.getTypeAttr()), Attribute(gather.getWhenAttr())})
    key.push_back(reinterpret_cast<int64_t>(part.getAsOpaquePointer()));
  key.push_back(gather.getCount());
  return gathers.try_emplace(key, position).first->second;
}

/// `"flag"` and `"!flag"`.
static bool areComplements(StringAttr a, StringAttr b) {
  return a && b &&
         (("!" + a.getValue()).str() == b.getValue() ||
          ("!" + b.getValue()).str() == a.getValue());
}

/// The writers that a reader with a condition may see, latest first.
static SmallVector<Writer, 2> getVisible(ArrayRef<Writer> writers,
                                         StringAttr when) {
  SmallVector<Writer, 2> visible;
  for (const Writer &writer : llvm::reverse(writers)) {
    if (areComplements(writer.when, when))
      continue;
    bool isLast = !writer.when || writer.when == when ||
                  llvm::any_of(visible, [&](const Writer &later) {
                    return areComplements(later.when, writer.when);
                  });
    visible.push_back(writer);
    if (isLast)
      break;
  }
  return visible;
}

void Writers::write(Space &space, const Access &access, const Writer &writer) {
  cutAt(space, access.begin);
  cutAt(space, access.end);
  auto it = space.lower_bound(access.begin);
  if (!writer.when) {
    while (it != space.end() && it->first < access.end)
      it = space.erase(it);
    space.emplace(access.begin, Segment{access.end, {writer}});
    return;
  }
  for (int64_t at = access.begin; at < access.end; ++it) {
    if (it == space.end() || it->first > at) {
      int64_t end =
          it == space.end() ? access.end : std::min(access.end, it->first);
      it = space.emplace_hint(it, at, Segment{end, {}});
    }
    List &writers = it->second.writers;
    llvm::erase_if(writers, [&](const Writer &earlier) {
      return earlier.when == writer.when;
    });
    writers.push_back(writer);
    at = it->second.end;
  }
}

void Writers::append(SmallVector<int64_t> &sources, ArrayRef<Writer> writers,
                     int64_t at) {
  for (const Writer &writer : writers)
    sources.append({writer.position, writer.operand, at - writer.begin});
}

SmallVector<int64_t> Writers::visit(ActionOpInterface action) {
  SmallVector<int64_t> sources;
  StringAttr when = action.getWhenAttr();
  SmallVector<Access> accesses = tables.getAccesses(action);
  for (const Access &access : accesses) {
    if (access.writes)
      continue;
    Space &space = spaces[{access.space, access.index}];
    // A bundle travels with the gaps between its members.
    int64_t end = isa<PlanSendOp>(*action) ? access.begin + 1 : access.end;
    auto it = space.upper_bound(access.begin);
    if (it != space.begin())
      --it;
    SmallVector<Writer, 2> previous;
    for (; it != space.end() && it->first < end; ++it) {
      if (it->second.end <= access.begin)
        continue;
      SmallVector<Writer, 2> visible = getVisible(it->second.writers, when);
      // What lies behind the previous source in one write is the same source.
      bool isSame =
          llvm::equal(visible, previous, [](const Writer &a, const Writer &b) {
            return a.position == b.position && a.operand == b.operand &&
                   a.begin == b.begin;
          });
      if (!isSame)
        append(sources, visible, std::max(it->first, access.begin));
      previous = std::move(visible);
    }
  }
  int64_t position = getPosition(action, sources);
  for (const Access &access : accesses)
    if (access.writes)
      write(spaces[{access.space, access.index}], access,
            {position, access.operand, access.begin, when});
  return sources;
}

SmallVector<int64_t> Writers::getResults() const {
  SmallVector<int64_t> results;
  for (auto &[key, space] : spaces) {
    if (key.first != AddressSpace::state && key.first != AddressSpace::scalar)
      continue;
    for (auto &[begin, segment] : space) {
      if (segment.writers.empty())
        continue;
      results.append({int64_t(key.first), begin, segment.end});
      append(results, segment.writers, begin);
    }
  }
  return results;
}

static bool hasSources(ActionOpInterface action) {
  return !isa<RecordOp, WaitOp, ReleaseOp, PlanRecvOp>(*action);
}

void piper::annotateDataFlow(EntryOp entry, const PlanTables &tables) {
  Builder builder(entry.getContext());
  Writers writers(tables);
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
    SmallVector<int64_t> sources = writers.visit(action);
    if (hasSources(action) && !sources.empty())
      action->setAttr(kSourcesAttr, builder.getDenseI64ArrayAttr(sources));
  }
  entry->setAttr(kResultsAttr,
                 builder.getDenseI64ArrayAttr(writers.getResults()));
}

/// `"F MB=0" (position 7)` for the source in which two lists differ first.
static std::string describeSource(EntryOp entry, ArrayRef<int64_t> sources,
                                  size_t index) {
  if (index >= sources.size())
    return "nothing";
  int64_t position = sources[index];
  std::string text;
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>())
    if (action.getLabelAttr() && action.getPositionAttr() &&
        action.getPositionAttr().getInt() == position) {
      text = "\"" + action.getLabelAttr().str() + "\" at ";
      break;
    }
  return text + "position " + std::to_string(position);
}

LogicalResult piper::checkDataFlow(EntryOp entry, const PlanTables &tables) {
  auto expectedResults = entry->getAttrOfType<DenseI64ArrayAttr>(kResultsAttr);
  if (!expectedResults)
    return success();
  Writers writers(tables);
  for (auto action : entry.getBody().front().getOps<ActionOpInterface>()) {
    SmallVector<int64_t> got = writers.visit(action);
    if (!hasSources(action))
      continue;
    auto attr = action->getAttrOfType<DenseI64ArrayAttr>(kSourcesAttr);
    ArrayRef<int64_t> expected = attr ? attr.asArrayRef() : ArrayRef<int64_t>();
    if (llvm::equal(expected, got))
      continue;
    size_t index = 0;
    while (index + 3 <= std::min(expected.size(), got.size()) &&
           expected.slice(index, 3) == ArrayRef(got).slice(index, 3))
      index += 3;
    return action->emitOpError("expected to read what ")
           << describeSource(entry, expected, index) << " wrote, got what "
           << describeSource(entry, got, index) << " wrote";
  }
  if (!llvm::equal(expectedResults.asArrayRef(), writers.getResults()))
    return entry.emitOpError("expected to leave in states and scalars what the "
                             "graph does, got other writers of some of them");
  return success();
}
