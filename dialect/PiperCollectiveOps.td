// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperCollectiveOps.td - communication in the global graph -------------===//

#ifndef PIPER_COLLECTIVE_OPS_TD
#define PIPER_COLLECTIVE_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "dialect/PiperTypes.td"
include "dialect/PiperInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

class Piper_CollectiveOp<string mnemonic>
    : Piper_Op<mnemonic, [HasParent<"GraphOp">, Piper_SchedulableOpInterface,
                          DeclareOpInterfaceMethods<Piper_CollectiveOpInterface>,
                          DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let hasVerifier = 1;
}

// Collectives with one operand and one result inside one device group.
class Piper_GroupCollectiveOp<string mnemonic> : Piper_CollectiveOp<mnemonic> {
  let results = (outs AnyRankedTensor:$result, Piper_TokenType:$token);
}

def Piper_AllReduceOp : Piper_GroupCollectiveOp<"all_reduce"> {
  let summary = "combines the operands of all members and gives every member the result";
  let description = [{
    Contributions are combined in position order, so all members get the same bits. A member that runs
    nothing that the operand depends on contributes zero (the losses of a pipeline, which its last stage
    makes and all ranks get).

    Example:
    ```mlir
    %reduced, %done = piper.all_reduce sum %flat on [0, 1] stream @dp : tensor<4160xf32> -> tensor<4160xf32>
    ```

    Constraints:
    - operand and result have the same type, of static shape.
    - `ranks` are given; a group of one moves nothing.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins Piper_Reduction:$reduction, AnyRankedTensor:$operand,
                       Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks,
                       OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = [{
    $reduction $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict
    `:` type($operand) `->` type($result)
  }];
}

def Piper_ReduceScatterOp : Piper_GroupCollectiveOp<"reduce_scatter"> {
  let summary = "combines the operands of all members and gives member p part p of the result";
  let description = [{
    Contributions are combined in position order, as in `piper.all_reduce`: part p has the bits that an
    all_reduce gives there.

    Example:
    ```mlir
    %part, %done = piper.reduce_scatter sum %flat on [0, 1] stream @dp : tensor<4160xf32> -> tensor<2080xf32>
    ```

    Constraints:
    - operand and result are vectors of static length and one element type; the operand has n times the
      result's elements, n the number of ranks.
    - `ranks` are given.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins Piper_Reduction:$reduction, AnyRankedTensor:$operand,
                       Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks,
                       OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = [{
    $reduction $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict
    `:` type($operand) `->` type($result)
  }];
}

def Piper_AllGatherOp : Piper_GroupCollectiveOp<"all_gather"> {
  let summary = "puts the operands of all members one behind the other, in position order";
  let description = [{
    The inverse of the scatter in `piper.reduce_scatter`: every member gets all parts.

    Example:
    ```mlir
    %full, %done = piper.all_gather %shard on [0, 1] stream @dp : tensor<2080xf32> -> tensor<4160xf32>
    ```

    Constraints:
    - operand and result are vectors of static length and one element type; the result has n times the
      operand's elements, n the number of ranks.
    - `ranks` are given.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins AnyRankedTensor:$operand, Variadic<Piper_TokenType>:$after,
                       OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = [{
    $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict
    `:` type($operand) `->` type($result)
  }];
}

def Piper_BroadcastOp : Piper_GroupCollectiveOp<"broadcast"> {
  let summary = "gives every member the operand of the member at position `root`";
  let description = [{
    The operands of the other members are not read.

    Example:
    ```mlir
    %same, %done = piper.broadcast %flat root 0 on [0, 1] stream @dp : tensor<4160xf32> -> tensor<4160xf32>
    ```

    Constraints:
    - operand and result have the same type, of static shape.
    - `ranks` are given, and 0 <= root < n, the number of ranks.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins AnyRankedTensor:$operand, I64Attr:$root, Variadic<Piper_TokenType>:$after,
                       OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = [{
    $operand `root` $root (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict
    `:` type($operand) `->` type($result)
  }];
}

def Piper_AllToAllOp : Piper_GroupCollectiveOp<"all_to_all"> {
  let summary = "member p's part q becomes member q's part p";
  let description = [{
    The leading dimension is divided in n equal parts, n the number of ranks.

    Example:
    ```mlir
    %turned, %done = piper.all_to_all %x on [0, 1] stream @dp : tensor<?x64xf32> -> tensor<?x64xf32>
    ```

    Constraints:
    - operand and result have the same type, with a leading dimension that, where static, is a multiple of n.
    - `ranks` are given.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins AnyRankedTensor:$operand, Variadic<Piper_TokenType>:$after,
                       OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream);
  let assemblyFormat = [{
    $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)? attr-dict
    `:` type($operand) `->` type($result)
  }];
}

def Piper_SendOp : Piper_CollectiveOp<"send"> {
  let summary = "sends a value from each member of a group to the member at the same position of another";
  let description = [{
    `microbatch` of `num_microbatches` repeats that of the producer (it gives the rows), `tags` its tags. The
    sender does not wait for the receiver.

    Example:
    ```mlir
    %message, %sent = piper.send %x on [0, 1] to [2, 3] stream @pp microbatch 3 of 8 tags {MB = 3} : tensor<?x64xf32>
    %y_there, %received = piper.recv %message on [2, 3] from [0, 1] stream @pp microbatch 3 of 8 tags {MB = 3} : tensor<?x64xf32>
    ```

    Constraints:
    - `ranks` are given; `ranks` and `to` have the same size and no rank in common.
    - exactly one `piper.recv` uses the message, and nothing else.
    - 0 <= microbatch < num_microbatches.
    - what is sent is a ranked tensor or a bundle.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins AnyTypeOf<[AnyRankedTensor, Piper_BundleType]>:$operand,
                       Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks,
                       DenseI64ArrayAttr:$to, OptionalAttr<FlatSymbolRefAttr>:$stream,
                       DefaultValuedAttr<I64Attr, "0">:$microbatch,
                       DefaultValuedAttr<I64Attr, "1">:$num_microbatches, OptionalAttr<DictionaryAttr>:$tags);
  let results = (outs Piper_MessageType:$message, Piper_TokenType:$token);
  let assemblyFormat = [{
    $operand (`after` `(` $after^ `)`)? (`on` $ranks^)? `to` $to (`stream` $stream^)?
    (`microbatch` $microbatch `of` $num_microbatches^)? (`tags` $tags^)? attr-dict `:` type($operand)
  }];
}

def Piper_RecvOp : Piper_CollectiveOp<"recv"> {
  let summary = "receives a message";
  let description = [{
    The value is the sender's, on the receivers' ranks. Where the receive stands in the block says when it is
    posted; who uses the value waits.

    Example:
    ```mlir
    %sent_bundle, %sent = piper.send %kept on [2, 3] to [0, 1] stream @pp : !piper.bundle
    %bundle, %received = piper.recv %sent_bundle on [0, 1] from [2, 3] stream @pp : !piper.bundle
    ```

    Constraints:
    - the message is a `piper.send`'s.
    - `ranks` are the send's `to`, `from` its `ranks`; type, microbatch and number of microbatches are the
      send's.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins Piper_MessageType:$message, Variadic<Piper_TokenType>:$after,
                       OptionalAttr<DenseI64ArrayAttr>:$ranks, DenseI64ArrayAttr:$from,
                       OptionalAttr<FlatSymbolRefAttr>:$stream,
                       DefaultValuedAttr<I64Attr, "0">:$microbatch,
                       DefaultValuedAttr<I64Attr, "1">:$num_microbatches, OptionalAttr<DictionaryAttr>:$tags);
  let results = (outs AnyTypeOf<[AnyRankedTensor, Piper_BundleType]>:$result, Piper_TokenType:$token);
  let assemblyFormat = [{
    $message (`after` `(` $after^ `)`)? (`on` $ranks^)? `from` $from (`stream` $stream^)?
    (`microbatch` $microbatch `of` $num_microbatches^)? (`tags` $tags^)? attr-dict `:` type($result)
  }];
}

#endif // PIPER_COLLECTIVE_OPS_TD
