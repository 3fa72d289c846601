// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Filter.h - which nodes a directive means -----------------*- C++ -*-===//

#ifndef PIPER_PASSES_DIRECTIVES_FILTER_H
#define PIPER_PASSES_DIRECTIVES_FILTER_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace piper {

/// The compute nodes of one graph, found by filter. Looking up a filter that
/// names an index costs what that index has nodes, not what the graph has.
class NodeIndex {
public:
  explicit NodeIndex(GraphOp graph);

  /// The nodes that `filter` matches, in graph order.
  llvm::SmallVector<ComputeOp> match(mlir::DictionaryAttr filter) const;

  llvm::ArrayRef<ComputeOp> getNodes() const { return nodes; }

private:
  llvm::SmallVector<ComputeOp> nodes;
  /// Postings by (tag, value).
  llvm::DenseMap<std::pair<mlir::StringAttr, mlir::Attribute>,
                 llvm::SmallVector<unsigned>>
      postings;
};

/// Whether `filter` matches the node.
bool matches(mlir::DictionaryAttr filter, ComputeOp node);

/// Fails with a diagnostic at `directive` where the filter names a tag that no
/// node of the module has, or matches no node of any graph (a backward that
/// matched nodes do not have is no failure).
mlir::LogicalResult verifyFilterMatches(mlir::Operation *directive,
                                        mlir::DictionaryAttr filter,
                                        llvm::ArrayRef<NodeIndex> graphs);

/// `F {stage = 0, MB = 3}`, as diagnostics name a node.
std::string describe(ComputeOp node);

/// `{stage = 0, PASS = "F"}`, without types.
std::string describe(mlir::DictionaryAttr filter);

/// ` MB=1 stage=0`, for a cell of a grid: indices of what the user named.
std::string describeShortly(mlir::DictionaryAttr tags);

/// The directives of one kind in the module's strategies, in file order.
template <typename DirectiveT>
llvm::SmallVector<DirectiveT> getDirectives(mlir::ModuleOp module) {
  llvm::SmallVector<DirectiveT> directives;
  for (auto strategy : module.getOps<StrategyOp>())
    llvm::append_range(directives,
                       strategy.getBody().front().getOps<DirectiveT>());
  return directives;
}

} // namespace piper

#endif // PIPER_PASSES_DIRECTIVES_FILTER_H
