// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Filter.cpp - which nodes a directive means -------------------------===//

#include "passes/directives/Filter.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace piper;

static constexpr llvm::StringLiteral passKey = "PASS";

static PassKind parsePass(StringRef name) {
  return llvm::StringSwitch<PassKind>(name)
      .Case("F", PassKind::F)
      .Case("B", PassKind::B)
      .Cases({"I", "BI"}, PassKind::I)
      .Default(PassKind::W);
}

/// A backward that is divided is I and W: together they are B.
static bool isPass(ComputeOp node, PassKind asked) {
  PassKind pass = node.getPass();
  return pass == asked || (asked == PassKind::B && pass != PassKind::F);
}

bool piper::matches(DictionaryAttr filter, ComputeOp node) {
  return llvm::all_of(filter, [&](NamedAttribute term) {
    auto text = dyn_cast<StringAttr>(term.getValue());
    if (term.getName() == passKey)
      return text && isPass(node, parsePass(text.getValue()));
    Attribute tag = node.getTags().get(term.getName());
    if (text) // "*": any index
      return isa_and_present<IntegerAttr>(tag);
    return tag == term.getValue();
  });
}

NodeIndex::NodeIndex(GraphOp graph) {
  for (auto node : graph.getBody().front().getOps<ComputeOp>()) {
    for (NamedAttribute tag : node.getTags())
      postings[{tag.getName(), tag.getValue()}].push_back(nodes.size());
    nodes.push_back(node);
  }
}

SmallVector<ComputeOp> NodeIndex::match(DictionaryAttr filter) const {
  const SmallVector<unsigned> *shortest = nullptr;
  for (NamedAttribute term : filter) {
    if (isa<StringAttr>(term.getValue())) // a pass, or any index
      continue;
    auto it = postings.find({term.getName(), term.getValue()});
    if (it == postings.end())
      return {};
    if (!shortest || it->second.size() < shortest->size())
      shortest = &it->second;
  }
  SmallVector<ComputeOp> found;
  auto consider = [&](ComputeOp node) {
    if (matches(filter, node))
      found.push_back(node);
  };
  if (shortest)
    for (unsigned i : *shortest)
      consider(nodes[i]);
  else
    llvm::for_each(nodes, consider);
  return found;
}

/// Indices print as plain numbers, so that a message reads as the user's own
/// strategy does.
static void printTerm(llvm::raw_ostream &os, NamedAttribute term) {
  os << term.getName().strref();
  if (auto index = dyn_cast<IntegerAttr>(term.getValue()))
    os << " = " << index.getInt();
  else if (!isa<UnitAttr>(term.getValue()))
    os << " = " << term.getValue();
}

std::string piper::describe(DictionaryAttr filter) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "{";
  llvm::interleaveComma(filter, os,
                        [&](NamedAttribute term) { printTerm(os, term); });
  os << "}";
  return text;
}

std::string piper::describe(ComputeOp node) {
  return (stringifyPassKind(node.getPass()) + " " + describe(node.getTags()))
      .str();
}

std::string piper::describeShortly(DictionaryAttr tags) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (NamedAttribute tag : tags)
    if (auto index = dyn_cast<IntegerAttr>(tag.getValue());
        index && !tag.getName().strref().starts_with("_"))
      os << " " << tag.getName().strref() << "=" << index.getInt();
  return text;
}

/// What is known of a tag: its indices, sorted.
using Tags = llvm::MapVector<StringAttr, SmallVector<int64_t>>;

static Tags collectTags(ArrayRef<NodeIndex> graphs) {
  Tags tags;
  llvm::DenseSet<std::pair<StringAttr, Attribute>> seen;
  for (const NodeIndex &graph : graphs)
    for (ComputeOp node : graph.getNodes())
      for (NamedAttribute tag : node.getTags()) {
        if (!seen.insert({tag.getName(), tag.getValue()}).second)
          continue;
        SmallVector<int64_t> &indices = tags[tag.getName()];
        if (auto index = dyn_cast<IntegerAttr>(tag.getValue()))
          indices.push_back(index.getInt());
      }
  for (auto &[name, indices] : tags)
    llvm::sort(indices);
  return tags;
}

static std::string listTags(const Tags &tags) {
  if (tags.empty())
    return "none";
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleaveComma(tags, os, [&](const auto &tag) {
    os << tag.first.strref();
    if (!tag.second.empty())
      os << " (" << tag.second.front() << " to " << tag.second.back() << ")";
  });
  return text;
}

static bool matchesAny(ArrayRef<NodeIndex> graphs, DictionaryAttr filter) {
  return llvm::any_of(graphs, [&](const NodeIndex &graph) {
    return !graph.match(filter).empty();
  });
}

static bool hasPass(ArrayRef<NodeIndex> graphs, PassKind kind) {
  return llvm::any_of(graphs, [&](const NodeIndex &graph) {
    return llvm::any_of(graph.getNodes(),
                        [&](ComputeOp node) { return node.getPass() == kind; });
  });
}

LogicalResult piper::verifyFilterMatches(Operation *directive,
                                         DictionaryAttr filter,
                                         ArrayRef<NodeIndex> graphs) {
  if (matchesAny(graphs, filter))
    return success();
  Tags tags = collectTags(graphs);
  for (NamedAttribute term : filter)
    if (term.getName() != passKey && !tags.contains(term.getName()))
      return directive->emitOpError("expected a known tag, got ")
             << term.getName() << "; known tags: " << listTags(tags);
  if (auto pass = filter.getAs<StringAttr>(passKey)) {
    PassKind kind = parsePass(pass.getValue());
    if ((kind == PassKind::I || kind == PassKind::W) &&
        !hasPass(graphs, PassKind::I) && !hasPass(graphs, PassKind::W))
      return directive->emitOpError("expected a program whose backward is "
                                    "divided into I and W to match ")
             << describe(filter) << "; here the backward is one pass: name B";
    // Parts without anything to train have no backward: a schedule that names
    // it means nothing there.
    NamedAttrList rest(filter);
    rest.erase(passKey);
    if (kind != PassKind::F &&
        matchesAny(graphs, rest.getDictionary(filter.getContext())))
      return success();
  }
  return directive->emitOpError("expected nodes that match ")
         << describe(filter) << ", got none; known tags: " << listTags(tags);
}
