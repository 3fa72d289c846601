// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.td - the Piper dialect -----------------------------------===//

#ifndef PIPER_DIALECT_TD
#define PIPER_DIALECT_TD

include "mlir/IR/OpBase.td"

def Piper_Dialect : Dialect {
  let name = "piper";
  let cppNamespace = "::piper";
  let summary = "A training step of a whole cluster as one program";
  let description = [{
    The dialect holds one training step from the imported graph of one device
    to the plans of every rank: compute nodes, collectives, streams and order
    are operations, and a parallel strategy is a list of rewrites over them.
  }];
}

class Piper_Op<string mnemonic, list<Trait> traits = []>
    : Op<Piper_Dialect, mnemonic, traits>;

#endif // PIPER_DIALECT_TD
