// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Groups.cpp - device groups and streams -----------------------------===//

#include "passes/directives/Groups.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace piper;

int64_t piper::getNumRanks(ModuleOp module) {
  auto meshes = module.getOps<MeshOp>();
  return meshes.empty() ? 1 : (*meshes.begin()).getNumRanks();
}

FlatSymbolRefAttr piper::getOrCreateStream(ModuleOp module, StringRef name) {
  if (!module.lookupSymbol(name)) {
    OpBuilder builder(module.getContext());
    builder.setInsertionPointToStart(module.getBody());
    // Behind the mesh and the streams that are there, in order of appearance.
    for (Operation &op : *module.getBody())
      if (isa<MeshOp, StreamOp>(op))
        builder.setInsertionPointAfter(&op);
    StreamOp::create(builder, module.getLoc(), name, IntegerAttr());
  }
  return FlatSymbolRefAttr::get(module.getContext(), name);
}

DenseI64ArrayAttr piper::getSortedRanks(MLIRContext *context,
                                        ArrayRef<int64_t> ranks) {
  SmallVector<int64_t> sorted(ranks);
  llvm::sort(sorted);
  return DenseI64ArrayAttr::get(context, sorted);
}

bool piper::isCovered(ArrayRef<int64_t> ranks, ArrayRef<int64_t> devices) {
  llvm::DenseSet<int64_t> all(llvm::from_range, devices);
  return llvm::all_of(ranks, [&](int64_t rank) { return all.contains(rank); });
}

std::string piper::describe(ArrayRef<int64_t> ranks) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "[";
  llvm::interleaveComma(ranks, os);
  os << "]";
  return text;
}
