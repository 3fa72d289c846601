// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Specialize.cpp - member functions of chunks ------------------------===//
//
// Rows are known once split and placement are: the graph's rows are divided
// over the members of a node's group, each member's rows over the microbatches,
// both as torch.tensor_split does.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/directives/Filter.h"
#include "llvm/ADT/SetVector.h"

namespace piper {
#define GEN_PASS_DEF_SPECIALIZE
#include "passes/Passes.h.inc"
} // namespace piper

using namespace mlir;
using namespace piper;

/// Rows in part `index` of `parts`: the first `rows % parts` parts have one
/// more.
static int64_t getPartRows(int64_t rows, int64_t parts, int64_t index) {
  return rows / parts + (index < rows % parts);
}

/// Chunks that no size changes bind nothing.
static FlatSymbolRefAttr findMember(ChunkOp chunk, int64_t rows) {
  if (FlatSymbolRefAttr member = chunk.lookupMember(rows))
    return member;
  auto only = cast<DictionaryAttr>(chunk.getMembers()[0]);
  if (only.getAs<DictionaryAttr>("binding").empty())
    return only.getAs<FlatSymbolRefAttr>("function");
  return {};
}

static LogicalResult specialize(ComputeOp node, int64_t graphRows,
                                const SymbolTable &symbols) {
  auto chunk = symbols.lookup<ChunkOp>(node.getCallee());
  if (!chunk)
    return node.emitOpError("expected a chunk, got ") << node.getCalleeAttr();
  if (!node.getRanksAttr())
    return node.emitOpError("expected a device group, got none");
  int64_t replicas = node.getRanksAttr().size();
  llvm::SmallSetVector<Attribute, 2> functions;
  SmallVector<int64_t> variants;
  for (int64_t replica = 0; replica < replicas; ++replica) {
    int64_t rows = getPartRows(getPartRows(graphRows, replicas, replica),
                               node.getNumMicrobatches(), node.getMicrobatch());
    if (rows == 0)
      return node.emitOpError("expected at least one row in each part, got ")
             << graphRows << " rows for " << replicas << " replicas of "
             << node.getNumMicrobatches() << " microbatches";
    FlatSymbolRefAttr member = findMember(chunk, rows);
    if (!member) {
      InFlightDiagnostic error = node.emitOpError("expected a member of ")
                                 << node.getCalleeAttr()
                                 << " for the binding rows = " << rows
                                 << " of replica " << replica << ", got none";
      error.attachNote(chunk.getLoc()) << "the chunk";
      return error;
    }
    functions.insert(member);
    variants.push_back(llvm::find(functions, member) - functions.begin());
  }
  Builder builder(node.getContext());
  node.setFunctionsAttr(builder.getArrayAttr(functions.getArrayRef()));
  node.setVariantsAttr(builder.getDenseI64ArrayAttr(variants));
  return success();
}

namespace {
struct Specialize : public piper::impl::SpecializeBase<Specialize> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto graph : getOperation().getOps<GraphOp>())
      for (auto node : graph.getBody().front().getOps<ComputeOp>())
        if (failed(specialize(node, graph.getRows(), symbols)))
          return signalPassFailure();
  }
};
} // namespace
