// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperStreamOps.td - execution resources -------------------------------===//

#ifndef PIPER_STREAM_OPS_TD
#define PIPER_STREAM_OPS_TD

include "dialect/PiperDialect.td"
include "mlir/IR/SymbolInterfaces.td"

def Piper_StreamOp : Piper_Op<"stream", [Symbol]> {
  let summary = "declares a stream";
  let description = [{
    A stream is a queue of a device that runs its operations in order.

    Example:
    ```mlir
    piper.stream @comm {sms = 20 : i64}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<I64Attr>:$sms);
  let assemblyFormat = "$sym_name attr-dict";
}

#endif // PIPER_STREAM_OPS_TD
