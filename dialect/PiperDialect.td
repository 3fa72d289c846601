// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDialect.td - the Piper dialect -----------------------------------===//

#ifndef PIPER_DIALECT_TD
#define PIPER_DIALECT_TD

include "mlir/IR/OpBase.td"

def Piper_Dialect : Dialect {
  let name = "piper";
  let cppNamespace = "::piper";
  let summary = "one training step of a whole cluster as one program";
  let description = [{
    A module holds a training step from the imported graph of one logical device to the plans of all
    ranks; its attribute `piper.phase` says how far it has come. README.md beside this file has the
    phases, what each may hold, and what order means.

    Constraints:
    - `piper.phase` is an attribute of a module: "imported", "scheduled" or "planned".
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let dependentDialects = ["::mlir::func::FuncDialect"];
  let extraClassDeclaration = [{
    /// The module attribute that says how far a program has come.
    static constexpr ::llvm::StringLiteral getPhaseAttrName() { return "piper.phase"; }
  }];
}

// Integers, lists of ranks and sizes in bytes are small enough to be added and
// multiplied by a width without overflow.
def Piper_BoundedIntegers : NativeOpTrait<"BoundedIntegers"> {
  let cppNamespace = "::piper";
}

class Piper_Op<string mnemonic, list<Trait> traits = []>
    : Op<Piper_Dialect, mnemonic, !listconcat(traits, [Piper_BoundedIntegers])>;

#endif // PIPER_DIALECT_TD
