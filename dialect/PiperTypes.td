// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Types of the Piper dialect.

#ifndef PIPER_TYPES_TD
#define PIPER_TYPES_TD

include "dialect/PiperDialect.td"
include "mlir/IR/AttrTypeBase.td"

class Piper_Type<string name, string typeMnemonic> : TypeDef<Piper_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Piper_BundleType : Piper_Type<"Bundle", "bundle"> {
  let summary = "values that a forward saves for its backward, as one value";
  let description = [{
    A bundle stands for all intermediates of one forward node that only its own backward reads. Its members are listed once, on the
    `piper.chunk` that produces it (`result_counts`), so that the number of SSA values in a graph does not grow with what a chunk saves.
    On a device a bundle is one buffer that holds its members one behind the other.
  }];
}

def Piper_TokenType : Piper_Type<"Token", "token"> {
  let summary = "order between two operations that data does not give";
  let description = [{
    Every schedulable operation ends in a token; an operation that names it in `after` starts no earlier than the token's producer was
    issued on every rank that runs both.
  }];
}

def Piper_MessageType : Piper_Type<"Message", "message"> {
  let summary = "a value on its way from one device group to another";
  let description = [{
    Produced by exactly one `piper.send`, consumed by exactly one `piper.recv`: a send always meets its own receive.
  }];
}

#endif // PIPER_TYPES_TD
