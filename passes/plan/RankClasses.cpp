// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RankClasses.cpp - ranks that do the same ---------------------------===//

#include "passes/plan/RankClasses.h"
#include "passes/plan/Sizes.h"
#include "llvm/ADT/DenseSet.h"
#include <map>

using namespace mlir;
using namespace piper;

namespace {
/// What a rank does, as numbers: equal vectors mean equal actions.
class Signatures {
public:
  explicit Signatures(int64_t numRanks) : signatures(numRanks) {}

  /// Looks at each distinct (group, how it is used) once, so the cost does not
  /// grow with the number of operations times that of ranks.
  void addGroup(DenseI64ArrayAttr group) {
    if (group && seen.insert({group, Attribute()}).second)
      add(group.asArrayRef(), [](int64_t) { return 0; });
  }

  void addCompute(ComputeOp node, int64_t rows) {
    DenseI64ArrayAttr group = node.getRanksAttr();
    if (!group || !node.getVariants())
      return;
    ArrayRef<int64_t> variants = *node.getVariants();
    if (seen.insert({group, node.getVariantsAttr()}).second)
      add(group.asArrayRef(),
          [&](int64_t position) { return variants[position]; });
    auto rowsAttr = IntegerAttr::get(IndexType::get(group.getContext()), rows);
    if (seen.insert({group, rowsAttr}).second)
      add(group.asArrayRef(), [&](int64_t position) {
        return splitRows(rows, group.size(), position).size;
      });
  }

  std::vector<std::vector<int64_t>> take() { return std::move(signatures); }

private:
  template <typename Fn> void add(ArrayRef<int64_t> ranks, Fn getValue) {
    int64_t number = seen.size();
    for (auto [position, rank] : llvm::enumerate(ranks)) {
      signatures[rank].push_back(number);
      signatures[rank].push_back(getValue(position));
    }
  }

  std::vector<std::vector<int64_t>> signatures;
  llvm::DenseSet<std::pair<Attribute, Attribute>> seen;
};
} // namespace

static int64_t countRanks(ModuleOp module) {
  for (auto mesh : module.getOps<MeshOp>())
    return mesh.getNumRanks();
  return 1;
}

RankClasses::RankClasses(ModuleOp module) : classOfRank(countRanks(module)) {
  Signatures signatures(getNumRanks());
  for (auto bucket : module.getOps<BucketOp>())
    signatures.addGroup(bucket.getRanksAttr());
  for (auto graph : module.getOps<GraphOp>())
    for (Operation &op : graph.getBody().front()) {
      if (auto schedulable = dyn_cast<SchedulableOpInterface>(op))
        signatures.addGroup(schedulable.getRanksAttr());
      if (auto node = dyn_cast<ComputeOp>(op))
        signatures.addCompute(node, graph.getRows());
    }

  std::map<std::vector<int64_t>, int64_t> numbers;
  for (auto [rank, signature] : llvm::enumerate(signatures.take())) {
    auto [it, isNew] =
        numbers.try_emplace(std::move(signature), numbers.size());
    if (isNew)
      classes.emplace_back();
    classes[it->second].push_back(rank);
    classOfRank[rank] = it->second;
  }
}

ArrayRef<int64_t> RankClasses::getClassesOf(DenseI64ArrayAttr group) {
  SmallVector<int64_t> &found = classesOfGroup[group];
  if (found.empty()) {
    for (int64_t rank : group.asArrayRef())
      found.push_back(classOfRank[rank]);
    llvm::sort(found);
    found.erase(llvm::unique(found), found.end());
  }
  return found;
}
