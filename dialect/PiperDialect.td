// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The Piper dialect.

#ifndef PIPER_DIALECT_TD
#define PIPER_DIALECT_TD

include "mlir/IR/OpBase.td"

def Piper_Dialect : Dialect {
  let name = "piper";
  let cppNamespace = "::piper";
  let summary = "one global training DAG for a whole cluster, and what becomes of it";
  let description = [{
    See README.md beside this file for the phases and what each may hold.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mlir::func::FuncDialect"];
}

class Piper_Op<string mnemonic, list<Trait> traits = []> : Op<Piper_Dialect, mnemonic, traits>;

#endif // PIPER_DIALECT_TD
