// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanAttrs.h - addresses and groups as text ---------------*- C++ -*-===//
//
// The custom directives of the plan operations' assembly formats.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_DIALECT_PLANATTRS_H
#define PIPER_DIALECT_PLANATTRS_H

#include "dialect/PiperTypes.h"
#include "mlir/IR/OpImplementation.h"

namespace piper {

/// `arena[64]`, `input 2[0 + @group0 * 512]`, without the attribute's brackets.
mlir::ParseResult parseAddressOperand(mlir::AsmParser &parser,
                                      AddressAttr &address);
void printAddress(llvm::raw_ostream &os, AddressAttr address);
void printAddressOperand(mlir::OpAsmPrinter &printer, mlir::Operation *,
                         AddressAttr address);

/// `(arena[0], state[64])`.
mlir::ParseResult parseAddresses(mlir::OpAsmParser &parser,
                                 mlir::ArrayAttr &addresses);
void printAddresses(mlir::OpAsmPrinter &printer, mlir::Operation *,
                    mlir::ArrayAttr addresses);

/// `[[0, 1], [2, 3]]`.
mlir::ParseResult parseGroups(mlir::OpAsmParser &parser,
                              mlir::ArrayAttr &groups);
void printGroups(mlir::OpAsmPrinter &printer, mlir::Operation *,
                 mlir::ArrayAttr groups);

} // namespace piper

#endif // PIPER_DIALECT_PLANATTRS_H
