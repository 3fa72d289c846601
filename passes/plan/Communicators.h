// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Communicators.h - who talks to whom ----------------------*- C++ -*-===//

#ifndef PIPER_PASSES_PLAN_COMMUNICATORS_H
#define PIPER_PASSES_PLAN_COMMUNICATORS_H

#include "dialect/PiperDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

namespace piper {

/// Makes communicators on demand, each once. A communicator's collectives run
/// on one stream, so groups that communicate on two streams have two.
class Communicators {
public:
  Communicators(mlir::OpBuilder builder, const mlir::SymbolTable &symbols)
      : builder(builder), symbols(symbols) {}

  /// For collectives of `group` on `stream`.
  mlir::FlatSymbolRefAttr getForGroup(mlir::Location loc,
                                      mlir::DenseI64ArrayAttr group,
                                      mlir::FlatSymbolRefAttr stream);
  /// For positions in `group` only.
  mlir::FlatSymbolRefAttr getForPositions(mlir::Location loc,
                                          mlir::DenseI64ArrayAttr group) {
    return getForGroup(loc, group, {});
  }
  /// For messages from each member of `from` to the member of `to` at the same
  /// position.
  mlir::FlatSymbolRefAttr getChannel(mlir::Location loc,
                                     mlir::DenseI64ArrayAttr from,
                                     mlir::DenseI64ArrayAttr to,
                                     mlir::FlatSymbolRefAttr stream);

private:
  mlir::FlatSymbolRefAttr create(mlir::Location loc, mlir::Attribute key,
                                 llvm::StringRef prefix,
                                 llvm::ArrayRef<mlir::Attribute> groups);

  mlir::OpBuilder builder;
  /// Names that the module has already.
  const mlir::SymbolTable &symbols;
  llvm::DenseMap<mlir::Attribute, mlir::FlatSymbolRefAttr> known;
};

/// `base`, or that with as many `_` as it takes to be no name of the module.
std::string getFreeName(const mlir::SymbolTable &symbols, std::string base);

} // namespace piper

#endif // PIPER_PASSES_PLAN_COMMUNICATORS_H
