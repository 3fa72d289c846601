// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enumerations of the Piper dialect.

#ifndef PIPER_ENUMS_TD
#define PIPER_ENUMS_TD

include "mlir/IR/EnumAttr.td"

def Piper_PassKind : I32EnumAttr<"PassKind", "the pass of training a node belongs to", [
    I32EnumAttrCase<"F", 0>, // forward
    I32EnumAttrCase<"B", 1>, // full backward
    I32EnumAttrCase<"I", 2>, // gradient with respect to the inputs
    I32EnumAttrCase<"W", 3>, // gradient with respect to the weights
  ]> {
  let cppNamespace = "::piper";
}

def Piper_StateKind : I32EnumAttr<"StateKind", "what a state symbol holds", [
    I32EnumAttrCase<"parameter", 0>,
    I32EnumAttrCase<"buffer", 1>,
    I32EnumAttrCase<"constant", 2>,
  ]> {
  let cppNamespace = "::piper";
}

def Piper_Reduction : I32EnumAttr<"Reduction", "how a collective combines its operands", [
    I32EnumAttrCase<"sum", 0>,
    I32EnumAttrCase<"max", 1>,
  ]> {
  let cppNamespace = "::piper";
}

def Piper_AddressSpace : I32EnumAttr<"AddressSpace", "the memory an address points into", [
    I32EnumAttrCase<"arena", 0>,
    I32EnumAttrCase<"state", 1>,
    I32EnumAttrCase<"input", 2>,
    I32EnumAttrCase<"scalar", 3>,
    I32EnumAttrCase<"workspace", 4>,
    I32EnumAttrCase<"buffer", 5>, // a buffer that memory planning has not placed
  ]> {
  let cppNamespace = "::piper";
}

def Piper_PlanStateKind : I32EnumAttr<"PlanStateKind", "what a tensor that outlives a run is", [
    I32EnumAttrCase<"parameter", 0>,
    I32EnumAttrCase<"buffer", 1>,
    I32EnumAttrCase<"moment", 2>,
    I32EnumAttrCase<"gradient", 3>,
    I32EnumAttrCase<"constant", 4>,
  ]> {
  let cppNamespace = "::piper";
}

#endif // PIPER_ENUMS_TD
