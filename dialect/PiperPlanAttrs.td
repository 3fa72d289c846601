// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attributes of the planned phase: addresses and where a state lies.

#ifndef PIPER_PLAN_ATTRS_TD
#define PIPER_PLAN_ATTRS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "mlir/IR/AttrTypeBase.td"

def Piper_AddressAttr : AttrDef<Piper_Dialect, "Address"> {
  let mnemonic = "address";
  let summary = "a byte address that may depend on a rank's position in a communicator";
  let description = [{
    `space index [offset + @communicator * stride]`: the base of the space, plus `offset`, plus the position of the executing rank in its group of the communicator times
    `stride`. `index` is the number of an input (space `input`) or of a buffer that memory planning has not placed yet (space `buffer`); other spaces have none.

    Example: `arena[128]`, `input 0[4096 + @group0 * 1024]`, `buffer 7[64]`.
  }];
  let parameters = (ins EnumParameter<Piper_AddressSpace>:$space, "int64_t":$index, "int64_t":$offset,
                    "::mlir::FlatSymbolRefAttr":$communicator, "int64_t":$stride);
  let builders = [AttrBuilder<(ins "::piper::AddressSpace":$space, "int64_t":$index, "int64_t":$offset), [{
    return $_get($_ctxt, space, index, offset, ::mlir::FlatSymbolRefAttr(), 0);
  }]>];
  let extraClassDeclaration = [{
    /// The address `bytes` further.
    AddressAttr advance(int64_t bytes) const {
      return get(getContext(), getSpace(), getIndex(), getOffset() + bytes, getCommunicator(), getStride());
    }
  }];
  let hasCustomAssemblyFormat = 1;
}

def Piper_SegmentAttr : AttrDef<Piper_Dialect, "Segment"> {
  let mnemonic = "segment";
  let summary = "where the ranks of one class hold a part of a state";
  let description = [{
    `repeat` runs of `count` elements, contiguous in memory from byte `at` of `space`. Run r of the rank at position p of `communicator` begins at element
    `element` + p * `stride` + r * `repeat_stride` of the flattened state; elements outside the state are padding.

    Example: `#piper.segment<@class0 state at 0 element -64 count 2080 by @group0 stride 2080>`.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$rankClass, EnumParameter<Piper_AddressSpace>:$space, "int64_t":$at, "int64_t":$element, "int64_t":$count,
                    OptionalParameter<"::mlir::FlatSymbolRefAttr">:$communicator, DefaultValuedParameter<"int64_t", "0">:$stride,
                    DefaultValuedParameter<"int64_t", "1">:$repeat, DefaultValuedParameter<"int64_t", "0">:$repeatStride);
  let assemblyFormat = [{
    `<` $rankClass $space `at` $at `element` $element `count` $count (`by` $communicator^ `stride` $stride)? (`repeat` $repeat^ `stride` $repeatStride)? `>`
  }];
}

#endif // PIPER_PLAN_ATTRS_TD
