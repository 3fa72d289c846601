// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RankView.h - a graph as the ranks of one class see it ----*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_RANKVIEW_H
#define PIPER_PASSES_PLAN_RANKVIEW_H

#include "passes/plan/StateLayout.h"
#include "llvm/ADT/SetVector.h"

namespace piper {

/// A value as a class holds it.
struct Held {
  /// Null for an empty bundle.
  AddressAttr address;
  int64_t bytes = 0;
  /// Offset and bytes of each member of a bundle.
  llvm::SmallVector<std::pair<int64_t, int64_t>, 0> members;
};

/// A sum in the making.
struct Accumulator {
  Held home;
  mlir::FlatSymbolRefAttr stream;
  std::string label;
  mlir::Type elementType;
  /// The contributions that this class makes, in the order they are added in.
  llvm::SmallVector<mlir::Value> contributions;
  /// How many have been added.
  unsigned added = 0;
  /// What is there before the first contribution: "write" (nothing), or "fresh"
  /// (what earlier runs left, unless the flag says otherwise).
  llvm::StringRef firstMode;
};

/// Where and for whom an action is made.
struct ActionSite {
  mlir::Location loc;
  mlir::FlatSymbolRefAttr stream;
  mlir::StringAttr when;
  std::string label;
  /// Place of the graph's operation in its block.
  int64_t position;
};

/// Operands of actions as attributes, so that `emit` takes plain values too.
template <typename T> inline T toAttribute(mlir::OpBuilder &, T attribute) {
  return attribute;
}
inline mlir::IntegerAttr toAttribute(mlir::OpBuilder &builder, int64_t value) {
  return builder.getI64IntegerAttr(value);
}
inline mlir::StringAttr toAttribute(mlir::OpBuilder &builder,
                                    llvm::StringRef text) {
  return builder.getStringAttr(text);
}
inline mlir::TypeAttr toAttribute(mlir::OpBuilder &, mlir::Type type) {
  return mlir::TypeAttr::get(type);
}
inline ReductionAttr toAttribute(mlir::OpBuilder &builder,
                                 Reduction reduction) {
  return ReductionAttr::get(builder.getContext(), reduction);
}

/// What one class does in one graph: makes its actions, knows where it holds
/// which value.
class RankView {
public:
  RankView(EntryOp entry, llvm::ArrayRef<int64_t> ranks, StateLayout &layout,
           Communicators &communicators);

  int64_t getFirstRank() const { return ranks.front(); }
  StateLayout &getLayout() { return layout; }

  AddressAttr createBuffer(mlir::Location loc, int64_t bytes,
                           llvm::StringRef kind, llvm::StringRef label);
  AddressAttr getAddress(AddressSpace space, int64_t offset,
                         int64_t index = 0) {
    return AddressAttr::get(builder.getContext(), space, index, offset);
  }
  /// `base` plus `stride` bytes times the rank's position in `group`.
  AddressAttr atPosition(AddressAttr base, mlir::DenseI64ArrayAttr group,
                         int64_t stride, mlir::Location loc);

  /// Appends an action; `operands` are those before the stream.
  template <typename OpT, typename... Args>
  OpT emit(const ActionSite &site, const Args &...operands) {
    streams.insert(site.stream);
    return OpT::create(builder, site.loc, toAttribute(builder, operands)...,
                       site.stream, site.when,
                       site.label.empty() ? mlir::StringAttr()
                                          : builder.getStringAttr(site.label),
                       builder.getI64IntegerAttr(site.position));
  }
  /// Makes `after` wait for `before`, which another stream executes.
  void order(mlir::Operation *before, const ActionSite &after);

  mlir::Operation *getLastAction();

  mlir::OpBuilder builder;
  llvm::DenseMap<mlir::Value, Held> values;
  llvm::DenseMap<mlir::Operation *, Accumulator> accumulators;
  /// Flat vectors of `piper.pack`s; complete once they are in `packed`.
  llvm::DenseMap<mlir::Operation *, Held> flats;
  llvm::DenseSet<mlir::Operation *> packed;
  /// Last action of each operation that a token orders.
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> lastActions;
  llvm::SmallSetVector<mlir::Attribute, 4> streams;
  /// Contributions that a run with the flag `fresh` writes where their sum is
  /// kept; other runs add them.
  llvm::DenseSet<mlir::Value> writtenIfFresh;
  /// Scales already added to the persistent one.
  llvm::DenseSet<mlir::Value> scales;
  int64_t numEvents = 0;

private:
  EntryOp entry;
  llvm::ArrayRef<int64_t> ranks;
  StateLayout &layout;
  Communicators &communicators;
  int64_t numBuffers = 0;
  BufferOp lastBuffer;
  llvm::DenseMap<mlir::Operation *, int64_t> events;
};

} // namespace piper

#endif // PIPER_PASSES_PLAN_RANKVIEW_H
