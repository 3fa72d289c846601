// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperInterfaces.td - operation interfaces -----------------------------===//

#ifndef PIPER_INTERFACES_TD
#define PIPER_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Piper_SchedulableOpInterface : OpInterface<"SchedulableOpInterface"> {
  let cppNamespace = "::piper";
  let description = [{
    An operation that a rank executes on one of its streams: compute, accumulate, update, collectives, send
    and receive. Implementations have an optional `ranks` (the device group; absent = the one logical device
    of the imported phase), an optional `stream`, variadic `after` tokens, and a token as their last result.
  }];
  let methods = [
    InterfaceMethod<"the device group, or null before placement",
                    "::mlir::DenseI64ArrayAttr", "getRanksAttr">,
    InterfaceMethod<"set the device group", "void", "setRanksAttr",
                    (ins "::mlir::DenseI64ArrayAttr":$ranks)>,
    InterfaceMethod<"the stream, or null before placement",
                    "::mlir::FlatSymbolRefAttr", "getStreamAttr">,
    InterfaceMethod<"set the stream", "void", "setStreamAttr",
                    (ins "::mlir::FlatSymbolRefAttr":$stream)>,
    InterfaceMethod<"tokens this operation waits for", "::mlir::OperandRange", "getAfter">,
    InterfaceMethod<"tokens this operation waits for, to change",
                    "::mlir::MutableOperandRange", "getAfterMutable">,
    InterfaceMethod<"the token that this operation ends in", "::mlir::Value", "getToken", (ins), [{
      return $_op->getResult($_op->getNumResults() - 1);
    }]>,
  ];
}

def Piper_CollectiveOpInterface
    : OpInterface<"CollectiveOpInterface", [Piper_SchedulableOpInterface]> {
  let cppNamespace = "::piper";
  let description = [{
    A schedulable operation that every member of its device group enters together, or that pairs two groups
    (send and receive).
  }];
  let methods = [
    InterfaceMethod<"the ranks that take part, in position order; of a transfer, senders before receivers",
                    "::llvm::SmallVector<int64_t>", "getParticipants">,
    InterfaceMethod<"bytes that one member contributes, where the type tells (bundles and `?` do not)",
                    "std::optional<int64_t>", "getContributionBytes">,
  ];
}

def Piper_ActionOpInterface : OpInterface<"ActionOpInterface"> {
  let cppNamespace = "::piper";
  let description = [{
    An action of a plan: what a stream of a rank executes.
  }];
  let methods = [
    InterfaceMethod<"the stream that executes it", "::mlir::FlatSymbolRefAttr", "getStreamAttr">,
    InterfaceMethod<"the flag under which it happens, or null", "::mlir::StringAttr", "getWhenAttr">,
    InterfaceMethod<"what people see in traces", "::mlir::StringAttr", "getLabelAttr">,
    InterfaceMethod<"set what people see in traces", "void", "setLabelAttr", (ins "::mlir::StringAttr":$label)>,
    InterfaceMethod<"its place in the order of the whole cluster, or null", "::mlir::IntegerAttr", "getPositionAttr">,
    InterfaceMethod<"set its place in the order of the whole cluster", "void", "setPositionAttr", (ins "::mlir::IntegerAttr":$position)>,
    InterfaceMethod<"the addresses it uses, in the order of the plan's record", "::llvm::SmallVector<::piper::AddressAttr>", "getAddresses">,
    InterfaceMethod<"replace the addresses", "void", "setAddresses", (ins "::llvm::ArrayRef<::piper::AddressAttr>":$addresses)>,
  ];
}

def Piper_DirectiveOpInterface : OpInterface<"DirectiveOpInterface"> {
  let cppNamespace = "::piper";
  let description = [{
    A directive of a strategy: it rewrites the nodes that its filters match.
  }];
  let methods = [
    InterfaceMethod<"every filter of the directive, in written order",
                    "::llvm::SmallVector<::mlir::DictionaryAttr>", "getFilters">,
    InterfaceMethod<"the device group that the directive gives, or null",
                    "::mlir::DenseI64ArrayAttr", "getDevicesAttr", (ins), "", [{ return {}; }]>,
  ];
}

#endif // PIPER_INTERFACES_TD
