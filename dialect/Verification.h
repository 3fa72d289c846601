// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Verification.h - what several verifiers share ------------*- C++ -*-===//

#ifndef PIPER_DIALECT_VERIFICATION_H
#define PIPER_DIALECT_VERIFICATION_H

#include "dialect/PiperDialect.h"
#include "llvm/ADT/DenseSet.h"

namespace piper {

/// Ends an error with a note at the other operation.
mlir::LogicalResult withNote(mlir::InFlightDiagnostic &&error,
                             mlir::Operation *other, const llvm::Twine &note);

/// 0 <= microbatch < numMicrobatches.
mlir::LogicalResult verifyMicrobatch(mlir::Operation *op, int64_t microbatch,
                                     int64_t numMicrobatches);

/// Tags are indices or unit, and `PASS` is none of them.
mlir::LogicalResult verifyTags(mlir::Operation *op, mlir::DictionaryAttr tags);

/// `value` is the result of an operation that a rank executes, so that it is
/// known which ranks hold it.
mlir::LogicalResult verifyExecuted(mlir::Operation *op, llvm::StringRef what,
                                   mlir::Value value);

/// ZeRO's flags build on one another.
mlir::LogicalResult verifyShardFlags(mlir::Operation *op, bool params,
                                     bool grads, bool optimizer);

/// `op` is the first of its kind in the block it stands in, which may hold no
/// other.
template <typename OpT> mlir::LogicalResult verifyOnlyOne(OpT op) {
  for (mlir::Operation *other = op->getPrevNode(); other;
       other = other->getPrevNode()) {
    if (!mlir::isa<OpT>(other))
      continue;
    return withNote(op->emitOpError("expected at most one in a module, got a "
                                    "second"),
                    other, "the first is here");
  }
  return mlir::success();
}

/// The operation of kind `OpT` that `symbol` names, or null after an error.
template <typename OpT>
OpT lookupSymbol(mlir::Operation *op, mlir::FlatSymbolRefAttr symbol,
                 mlir::SymbolTableCollection &symbols,
                 llvm::StringRef kind = OpT::getOperationName()) {
  mlir::Operation *found = symbols.lookupNearestSymbolFrom(op, symbol);
  if (OpT match = mlir::dyn_cast_or_null<OpT>(found))
    return match;
  mlir::InFlightDiagnostic error = op->emitOpError("expected ")
                                   << symbol << " to name a " << kind;
  if (found)
    error.attachNote(found->getLoc()) << "it names a " << found->getName();
  else
    error << ", got no such symbol";
  return nullptr;
}

/// Every symbol that is given names an operation of kind `OpT`.
template <typename OpT>
mlir::LogicalResult verifySymbol(mlir::Operation *op,
                                 mlir::FlatSymbolRefAttr symbol,
                                 mlir::SymbolTableCollection &symbols) {
  return mlir::success(!symbol || lookupSymbol<OpT>(op, symbol, symbols));
}

/// Checks device groups against the module's mesh, each distinct group once:
/// the same group stands on very many operations.
class DeviceGroupVerifier {
public:
  explicit DeviceGroupVerifier(MeshOp mesh) : mesh(mesh) {}

  /// Ranks are distinct and inside the mesh; a null group is fine.
  mlir::LogicalResult verify(mlir::Operation *op,
                             mlir::DenseI64ArrayAttr group);

  /// Two groups have no rank in common.
  mlir::LogicalResult verifyDisjoint(mlir::Operation *op,
                                     mlir::DenseI64ArrayAttr first,
                                     mlir::DenseI64ArrayAttr second);

private:
  MeshOp mesh;
  llvm::DenseSet<mlir::Attribute> verified;
  llvm::DenseSet<std::pair<mlir::Attribute, mlir::Attribute>> disjoint;
};

} // namespace piper

#endif // PIPER_DIALECT_VERIFICATION_H
