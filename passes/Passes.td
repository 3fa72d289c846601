// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Passes.td - Piper's passes --------------------------------------------===//

#ifndef PIPER_PASSES_TD
#define PIPER_PASSES_TD

include "mlir/Pass/PassBase.td"

def DropUnusedStreams : Pass<"piper-drop-unused-streams", "::mlir::ModuleOp"> {
  let summary = "Erases streams that no operation names";
}

#endif // PIPER_PASSES_TD
