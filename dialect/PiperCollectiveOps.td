// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communication in the global graph.

#ifndef PIPER_COLLECTIVE_OPS_TD
#define PIPER_COLLECTIVE_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "dialect/PiperTypes.td"
include "dialect/PiperInterfaces.td"

class Piper_CollectiveOp<string mnemonic, list<Trait> traits = []>
    : Piper_Op<mnemonic, !listconcat([Piper_SchedulableOpInterface, DeclareOpInterfaceMethods<Piper_CollectiveOpInterface>], traits)> {
  let hasVerifier = 1;
}

// Collectives with one operand and one result inside one device group.
class Piper_GroupCollectiveOp<string mnemonic> : Piper_CollectiveOp<mnemonic> {
  let results = (outs AnyRankedTensor:$result, Piper_TokenType:$token);
}

def Piper_AllReduceOp : Piper_GroupCollectiveOp<"all_reduce"> {
  let summary = "combines the operands of all members and gives every member the result";
  let description = [{
    Contributions are combined in position order, so all members get the same bits.

    Example:
    ```mlir
    %r, %t = piper.all_reduce sum %g on [0, 1] stream @reduce : tensor<4160xf32> -> tensor<4160xf32>
    ```

    Constraints:
    - operand and result have the same type.
    - ranks are distinct; a group of one is allowed and moves nothing.
  }];
  let arguments = (ins Piper_Reduction:$reduction, AnyRankedTensor:$operand, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = "$reduction $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict `:` type($operand) `->` type($result)";
}

def Piper_ReduceScatterOp : Piper_GroupCollectiveOp<"reduce_scatter"> {
  let summary = "combines the operands of all members and gives member p part p of the result";
  let description = [{
    Example:
    ```mlir
    %r, %t = piper.reduce_scatter sum %g on [0, 1] stream @reduce : tensor<4160xf32> -> tensor<2080xf32>
    ```

    Constraints:
    - the operand is one-dimensional, its length a multiple of the group's size n; the result has length / n elements of the same type.
  }];
  let arguments = (ins Piper_Reduction:$reduction, AnyRankedTensor:$operand, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = "$reduction $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict `:` type($operand) `->` type($result)";
}

def Piper_AllGatherOp : Piper_GroupCollectiveOp<"all_gather"> {
  let summary = "puts the operands of all members one behind the other, in position order";
  let description = [{
    Example:
    ```mlir
    %full, %t = piper.all_gather %shard on [0, 1] stream @gather : tensor<2080xf32> -> tensor<4160xf32>
    ```

    Constraints:
    - one-dimensional; the result has n times the operand's elements of the same type.
  }];
  let arguments = (ins AnyRankedTensor:$operand, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = "$operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict `:` type($operand) `->` type($result)";
}

def Piper_BroadcastOp : Piper_GroupCollectiveOp<"broadcast"> {
  let summary = "gives every member the operand of the member at position `root`";
  let description = [{
    Example:
    ```mlir
    %r, %t = piper.broadcast %x root 0 on [0, 1] stream @comm : tensor<8xf32> -> tensor<8xf32>
    ```

    Constraints:
    - operand and result have the same type; 0 <= root < n.
  }];
  let arguments = (ins AnyRankedTensor:$operand, I64Attr:$root, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = "$operand `root` $root (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict `:` type($operand) `->` type($result)";
}

def Piper_AllToAllOp : Piper_GroupCollectiveOp<"all_to_all"> {
  let summary = "member p's part q becomes member q's part p";
  let description = [{
    The leading dimension is divided in n equal parts.

    Example:
    ```mlir
    %r, %t = piper.all_to_all %x on [0, 1] stream @ep : tensor<8x4xf32> -> tensor<8x4xf32>
    ```

    Constraints:
    - operand and result have the same type of rank >= 1; a static leading dimension is a multiple of n.
  }];
  let arguments = (ins AnyRankedTensor:$operand, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = "$operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict `:` type($operand) `->` type($result)";
}

def Piper_SendOp : Piper_CollectiveOp<"send"> {
  let summary = "sends a value from each member of a group to the member at the same position of another group";
  let description = [{
    `microbatch` of `num_microbatches` repeats that of the producer (it gives the rows). The sender does not wait for the receiver.

    Example:
    ```mlir
    %m, %t = piper.send %y on [0, 1] to [2, 3] stream @pp microbatch 3 of 8 : tensor<?x64x256xf32>
    ```

    Constraints:
    - `ranks` and `to` have the same size and no rank in common.
    - exactly one `piper.recv` uses the message.
  }];
  let arguments = (ins AnyType:$operand, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, DenseI64ArrayAttr:$to, OptionalAttr<FlatSymbolRefAttr>:$stream,
                   DefaultValuedAttr<I64Attr, "0">:$microbatch, DefaultValuedAttr<I64Attr, "1">:$num_microbatches, OptionalAttr<DictionaryAttr>:$tags);
  let results = (outs Piper_MessageType:$message, Piper_TokenType:$token);
  let assemblyFormat = [{
    $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? `to` $to (`stream` $stream^)? (`microbatch` $microbatch `of` $num_microbatches^)? (`tags` $tags^)? attr-dict `:` type($operand)
  }];
}

def Piper_RecvOp : Piper_CollectiveOp<"recv"> {
  let summary = "receives a message";
  let description = [{
    Example:
    ```mlir
    %y, %t = piper.recv %m on [2, 3] from [0, 1] stream @pp : tensor<?x64x256xf32>
    ```

    Constraints:
    - `ranks` are the send's `to`, `from` its `ranks`, and the type its operand's.
  }];
  let arguments = (ins Piper_MessageType:$message, Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks, DenseI64ArrayAttr:$from, OptionalAttr<FlatSymbolRefAttr>:$stream,
                   DefaultValuedAttr<I64Attr, "0">:$microbatch, DefaultValuedAttr<I64Attr, "1">:$num_microbatches, OptionalAttr<DictionaryAttr>:$tags);
  let results = (outs AnyType:$result, Piper_TokenType:$token);
  let assemblyFormat = [{
    $message (`after` `(` $after^ `)`)? (`on` $ranks^)? `from` $from (`stream` $stream^)? (`microbatch` $microbatch `of` $num_microbatches^)? (`tags` $tags^)? attr-dict `:` type($result)
  }];
}

#endif // PIPER_COLLECTIVE_OPS_TD
