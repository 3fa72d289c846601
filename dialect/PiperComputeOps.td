// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperComputeOps.td - the global training graph ------------------------===//

#ifndef PIPER_COMPUTE_OPS_TD
#define PIPER_COMPUTE_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "dialect/PiperTypes.td"
include "dialect/PiperInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

def Piper_GraphOp
    : Piper_Op<"graph", [Symbol, HasParent<"::mlir::ModuleOp">, SingleBlock, IsolatedFromAbove,
                         DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one global DAG for the whole cluster";
  let description = [{
    The graph of one entry point (`step` trains, `evaluate` is forward only). A node is held once per device
    group, never once per rank. `rows` is the number of rows of the global batch. From the scheduled phase
    on, the order of operations in the block is the order in which each rank issues those that concern it,
    per stream.

    Example:
    ```mlir
    piper.graph @evaluate rows 16 {
      %both = piper.pack () : () -> tensor<2xf32>
      piper.return %both : tensor<2xf32>
    }
    ```

    Constraints:
    - one block without arguments, which ends in `piper.return`; nodes stand in no other operation.
    - `rows` is positive.
    - inputs of one index have one name, and either all are split or none.
    - a state or bucket is written at most once.
    - a state has at most one `piper.accumulate` per device group.
    - every device group's ranks are distinct and inside the module's mesh, at least one; the groups of a
      send have no rank in common.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ConfinedAttr<I64Attr, [IntPositive]>:$rows);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `rows` $rows attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

// What a graph holds. Graphs keep values in order (no cycles), which verifiers rely on.
class Piper_NodeOp<string mnemonic, list<Trait> traits = []>
    : Piper_Op<mnemonic, !listconcat([HasParent<"GraphOp">], traits)>;

def Piper_ReturnOp : Piper_NodeOp<"return", [Terminator]> {
  let summary = "the sum of losses and the sum of weights";
  let description = [{
    The loss of a step is `loss_sum / weight_sum` over the whole global batch. From the scheduled phase on
    both are packed in one value that all ranks hold.

    Example:
    ```mlir
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
    ```

    Constraints:
    - two scalars `tensor<f32>` that a rank computes, or one `tensor<2xf32>`.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
  let hasVerifier = 1;
}

def Piper_InputOp : Piper_NodeOp<"input", [Pure]> {
  let summary = "a tensor of the batch";
  let description = [{
    `index` is the position in the flat list of tensors of the batch. With `split`, dimension 0 is the batch
    and each microbatch of each replica takes its rows: the global batch's rows are divided over the
    replicas, then each replica's over its microbatches, both as `torch.tensor_split` does. `microbatch` of
    `num_microbatches` says which part this value is.

    Example:
    ```mlir
    %ids = piper.input "args.0" 0 split microbatch 2 of 8 : tensor<?x64xi64>
    ```

    Constraints:
    - `index` is 0 to 65535.
    - 0 <= microbatch < num_microbatches; 0 of 1 for a value that is not split.
    - a value that is split has a dimension 0.
  }];
  let arguments = (ins StrAttr:$name, ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<65535>]>:$index, UnitAttr:$split,
                       DefaultValuedAttr<I64Attr, "0">:$microbatch,
                       DefaultValuedAttr<I64Attr, "1">:$num_microbatches);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $name $index (`split` $split^)? (`microbatch` $microbatch `of` $num_microbatches^)? attr-dict
    `:` type($result)
  }];
  let hasVerifier = 1;
}

def Piper_ReadOp : Piper_NodeOp<"read", [MemoryEffects<[MemRead]>,
                                     DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value that a state or bucket has when the step begins";
  let description = [{
    Of a state: its tensor. Of a bucket (scheduled phase): what a rank keeps of the flat vector, its part
    where parameters are sharded, else the whole.

    Example:
    ```mlir
    %weight_before = piper.read @"a.weight" : tensor<64x64xf32>
    %flat_before = piper.read @bucket0 : tensor<4160xf32>
    ```

    Constraints:
    - `source` names a state of the result's type, or a bucket.
    - of a bucket: `tensor<padded x type>`, with `shard_params` `tensor<padded / n x type>`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$source);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source attr-dict `:` type($result)";
}

def Piper_WriteOp : Piper_NodeOp<"write", [MemoryEffects<[MemWrite]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value that a buffer or bucket has when the step ends";
  let description = [{
    Within a graph a changed buffer is an ordinary value, handed from microbatch to microbatch; what is
    written is the last one.

    Example:
    ```mlir
    piper.write @"bn.mean", %mean : tensor<64xf32>
    ```

    Constraints:
    - `target` names a state of kind `buffer` and of the value's type, or a bucket.
    - of a bucket: the types of `piper.read`; where the bucket holds one state only, also that state's type.
    - no other write of the graph has the same target.
  }];
  let arguments = (ins FlatSymbolRefAttr:$target, AnyRankedTensor:$value);
  let assemblyFormat = "$target `,` $value attr-dict `:` type($value)";
}

def Piper_ComputeOp : Piper_NodeOp<"compute", [Piper_SchedulableOpInterface, AttrSizedOperandSegments,
                                           DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a call of a chunk";
  let description = [{
    `tags` holds the annotation indices of the chunk and, after `split`, the microbatch under the
    directive's `dim_name`. `microbatch` of `num_microbatches` gives the rows (see `piper.input`). `ranks`
    is the device group; a member at position p of n works on the rows of replica p. `functions` and
    `variants` (scheduled phase, after specialization) name the member function of each replica: replica p
    calls `functions[variants[p]]`.

    Example:
    ```mlir
    %y, %saved, %token = piper.compute @block_F(%x, %w) F {MB = 1, stage = 0} microbatch 1 of 8 on [0, 1]
        stream @compute functions [@block_F_rows4, @block_F_rows3] [0, 1]
        : (tensor<?x64xf32>, tensor<64x64xf32>) -> (tensor<?x64xf32>, !piper.bundle)
    ```

    Constraints:
    - `callee` is a `piper.chunk` of the same pass with as many operands and results.
    - a tensor stands for one value of the chunk and agrees with it in every member (a `?` agrees with any
      extent); a bundle that is an operand stands for as many values as the compute that made it says, of
      the same ranks and element types.
    - tags are indices of at least 0 (`i64`) or unit; `PASS` is no tag.
    - 0 <= microbatch < num_microbatches.
    - `stream` is a `piper.stream`.
    - `functions` are members of the chunk; `variants` has one entry per rank, an index into `functions`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyType>:$inputs,
                       Variadic<Piper_TokenType>:$after, Piper_PassKind:$pass, DictionaryAttr:$tags,
                       DefaultValuedAttr<I64Attr, "0">:$microbatch,
                       DefaultValuedAttr<I64Attr, "1">:$num_microbatches,
                       OptionalAttr<DenseI64ArrayAttr>:$ranks, OptionalAttr<FlatSymbolRefAttr>:$stream,
                       OptionalAttr<FlatSymbolRefArrayAttr>:$functions,
                       OptionalAttr<DenseI64ArrayAttr>:$variants);
  let results = (outs Variadic<AnyType>:$outputs, Piper_TokenType:$token);
  let assemblyFormat = [{
    $callee `(` $inputs `)` (`after` `(` $after^ `)`)? $pass $tags
    (`microbatch` $microbatch `of` $num_microbatches^)? (`on` $ranks^)? (`stream` $stream^)?
    (`functions` $functions^ $variants)? attr-dict `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

def Piper_AccumulateOp : Piper_NodeOp<"accumulate", [Piper_SchedulableOpInterface, AttrSizedOperandSegments,
                                                 DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the sum of contributions";
  let description = [{
    Unordered in the imported phase; scheduling sorts `contributions` in the order in which they are added
    (the order they are produced in), which makes the sum deterministic. With `state` it is the gradient of
    that state: a rank adds only what its own nodes contribute, and a rank of the bucket's group without any
    contribution has zero. Without, it is a sum over microbatches.

    Example:
    ```mlir
    %grad, %done = piper.accumulate @"a.weight" (%gw0, %gw1) : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
    %total, %done2 = piper.accumulate (%loss, %loss) on [2, 3] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    ```

    Constraints:
    - at least one contribution; all have the result's type and are what a rank computes (or receives), not
      inputs or states.
    - `state`, where given, is trainable and of that type.
    - a state has at most one accumulate per graph and device group.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins OptionalAttr<FlatSymbolRefAttr>:$state, Variadic<AnyRankedTensor>:$contributions,
                       Variadic<Piper_TokenType>:$after, OptionalAttr<DenseI64ArrayAttr>:$ranks,
                       OptionalAttr<FlatSymbolRefAttr>:$stream);
  let results = (outs AnyRankedTensor:$result, Piper_TokenType:$token);
  let assemblyFormat = [{
    ($state^)? `(` $contributions `)` (`after` `(` $after^ `)`)? (`on` $ranks^)? (`stream` $stream^)?
    attr-dict `:` type($contributions) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Piper_PackOp : Piper_NodeOp<"pack", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "gradients of a bucket's states as one flat vector";
  let description = [{
    `parts[i]` is the gradient of `states[i]` on the ranks that make it; a state that several groups share may
    have a part from each. What a rank has no part for contributes zero, so does the padding. No data moves:
    the accumulators lie inside the flat vector. Without a bucket the parts are scalars that are put side by
    side, or each into the element that `slots` says, where several groups have a part of one sum; no part at
    all is the zero of a group that has nothing to give.

    Example:
    ```mlir
    %grads = piper.pack @bucket0 [@"a.weight", @"a.bias"] (%gw0, %gb) on [0, 1] : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<4160xf32>
    %pair = piper.pack (%loss, %weight) on [2, 3] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %shared = piper.pack (%loss, %weight) into [1, 0] on [2, 3] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    ```

    Constraints:
    - `states` are states of the bucket, one part each, of that state's type; parts of one state come from
      different device groups.
    - the result is `tensor<padded x type>`.
    - without a bucket: every part is a scalar of the result's element type, and the result has one element
      per part, or any number where there are no parts or `slots` are given.
    - `slots` are elements of the result, one per part and only without a bucket; parts of one element come
      from different device groups.
  }];
  let arguments = (ins OptionalAttr<FlatSymbolRefAttr>:$bucket, OptionalAttr<FlatSymbolRefArrayAttr>:$states,
                       Variadic<AnyRankedTensor>:$parts, OptionalAttr<DenseI64ArrayAttr>:$slots,
                       OptionalAttr<DenseI64ArrayAttr>:$ranks);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = [{
    ($bucket^ $states)? `(` $parts `)` (`into` $slots^)? (`on` $ranks^)? attr-dict
    `:` functional-type($parts, $result)
  }];
  let extraClassDeclaration = [{
    /// The element that part `index` of a pack without bucket is.
    int64_t getSlot(int64_t index) { return getSlots() ? (*getSlots())[index] : index; }
  }];
  let hasVerifier = 1;
}

def Piper_UnpackOp : Piper_NodeOp<"unpack", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one state inside a bucket's flat vector";
  let description = [{
    A view: no data moves.

    Example:
    ```mlir
    %part = piper.unpack @bucket0 @"a.weight" %flat : tensor<4160xf32> -> tensor<64x64xf32>
    ```

    Constraints:
    - `state` is a state of the bucket, of the result's type.
    - `flat` is `tensor<padded x type>`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$bucket, FlatSymbolRefAttr:$state, AnyRankedTensor:$flat);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$bucket $state $flat attr-dict `:` type($flat) `->` type($result)";
}

def Piper_UpdateOp : Piper_NodeOp<"update", [Piper_SchedulableOpInterface, AttrSizedOperandSegments,
                                         MemoryEffects<[MemRead, MemWrite]>,
                                         DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the optimizer's step on a state (imported phase) or bucket (scheduled phase)";
  let description = [{
    The gradient is first multiplied by 1 / weight_sum; `scale` is the value packed as
    [loss_sum, weight_sum]; where weight_sum is 0 the update is skipped. The rule is elementwise, so it may
    run on a shard: the result is the updated part of the parameters that this rank owns.

    Example:
    ```mlir
    %stepped = piper.update @"a.weight" (%sum) optimizer @group0 : tensor<64x64xf32>
    %updated, %stepped2 = piper.update @bucket0 (%shard) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<2080xf32>, tensor<2xf32> -> tensor<2080xf32>
    ```

    Constraints:
    - `target` is a trainable state of the gradient's type, or a bucket with an optimizer.
    - of a state the gradient is the result of that state's `piper.accumulate`.
    - of a bucket the gradient is `tensor<padded x type>`, with `shard_optimizer` `tensor<padded / n x type>`,
      and the result has the same type.
    - `optimizer` is a `piper.optimizer`; of a bucket, the bucket's own.
    - `scale`, a `tensor<2xf32>`, and the result are present exactly for a bucket.
    - `stream` is a `piper.stream`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$target, AnyRankedTensor:$gradient,
                       Optional<AnyRankedTensor>:$scale, Variadic<Piper_TokenType>:$after,
                       FlatSymbolRefAttr:$optimizer, OptionalAttr<DenseI64ArrayAttr>:$ranks,
                       OptionalAttr<FlatSymbolRefAttr>:$stream);
  let results = (outs Optional<AnyRankedTensor>:$updated, Piper_TokenType:$token);
  let assemblyFormat = [{
    $target `(` $gradient `)` (`scale` $scale^)? (`after` `(` $after^ `)`)? `optimizer` $optimizer
    (`on` $ranks^)? (`stream` $stream^)? attr-dict
    `:` type($gradient) (`,` type($scale)^)? (`->` type($updated)^)?
  }];
}

#endif // PIPER_COMPUTE_OPS_TD
