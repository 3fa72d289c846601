// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Prefetch.cpp - when sharded parameters are gathered ----------------===//

#include "passes/schedule/Prefetch.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using namespace piper;

bool piper::isPrefetch(Operation *op) {
  auto gather = dyn_cast<AllGatherOp>(op);
  return gather && gather.getOperand().getDefiningOp<ReadOp>();
}

namespace {
/// The gathers that one node uses, by bucket.
using Gathers = llvm::MapVector<Attribute, AllGatherOp>;

/// The last nodes of a device group that used gathers.
struct Window {
  ComputeOp previous, beforePrevious;
  Gathers held;
};
} // namespace

static Gathers getGathers(ComputeOp node) {
  Gathers gathers;
  for (Value operand : node.getInputs()) {
    auto view = operand.getDefiningOp<UnpackOp>();
    auto gather =
        view ? view.getFlat().getDefiningOp<AllGatherOp>() : AllGatherOp();
    if (gather && isPrefetch(gather))
      gathers.insert({view.getBucketAttr(), gather});
  }
  return gathers;
}

PrefetchPlan piper::planPrefetches(ArrayRef<ComputeOp> nodes) {
  PrefetchPlan plan;
  llvm::DenseMap<Attribute, Window> windows;
  for (ComputeOp node : nodes) {
    Gathers gathers = getGathers(node);
    if (gathers.empty())
      continue;
    Window &window = windows[node.getRanksAttr()];
    ComputeOp before = window.previous ? window.previous : node;
    for (auto &[bucket, gather] : gathers) {
      if (AllGatherOp shared = window.held.lookup(bucket)) {
        gather.getResult().replaceAllUsesWith(shared.getResult());
        gather.erase();
        gather = shared;
        continue;
      }
      if (window.beforePrevious)
        gather.getAfterMutable().append(window.beforePrevious.getToken());
      plan[before].push_back(gather);
    }
    window.beforePrevious = window.previous;
    window.previous = node;
    window.held = std::move(gathers);
  }
  return plan;
}
