// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- RankClasses.h - ranks that do the same -------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_RANKCLASSES_H
#define PIPER_PASSES_PLAN_RANKCLASSES_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"

namespace piper {

/// The ranks of a mesh, divided so that the ranks of a class belong to the same
/// device groups of every operation, call the same members of every chunk and
/// have as many rows.
class RankClasses {
public:
  explicit RankClasses(mlir::ModuleOp module);

  int64_t getNumRanks() const { return classOfRank.size(); }
  /// In the order of their lowest ranks; ranks ascend.
  llvm::ArrayRef<llvm::SmallVector<int64_t>> getClasses() const {
    return classes;
  }
  int64_t getClassOf(int64_t rank) const { return classOfRank[rank]; }
  /// The classes that a device group consists of, ascending.
  llvm::ArrayRef<int64_t> getClassesOf(mlir::DenseI64ArrayAttr group);

private:
  llvm::SmallVector<llvm::SmallVector<int64_t>> classes;
  llvm::SmallVector<int64_t> classOfRank;
  llvm::DenseMap<mlir::Attribute, llvm::SmallVector<int64_t>> classesOfGroup;
};

} // namespace piper

#endif // PIPER_PASSES_PLAN_RANKCLASSES_H
