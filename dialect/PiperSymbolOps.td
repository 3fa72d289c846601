// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperSymbolOps.td - mesh, streams, state, buckets, optimizers, chunks -===//

#ifndef PIPER_SYMBOL_OPS_TD
#define PIPER_SYMBOL_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "mlir/IR/SymbolInterfaces.td"

class Piper_SymbolOp<string mnemonic, list<Trait> traits = []>
    : Piper_Op<mnemonic, !listconcat([Symbol, HasParent<"::mlir::ModuleOp">], traits)>;

def Piper_MeshOp : Piper_SymbolOp<"mesh"> {
  let summary = "the ranks of a cluster, arranged along named axes";
  let description = [{
    Ranks are numbered row-major: in a mesh `["pp", "dp"]` of shape `[2, 2]`, rank = pp * 2 + dp. A
    placement is a list of ranks, its order the members' positions.

    Example:
    ```mlir
    piper.mesh @mesh ["pp", "dp"] [2, 2]
    ```

    Constraints:
    - `axes` and `shape` have the same length, at least one axis.
    - axis names are distinct and not empty.
    - every extent is at least 1, and the number of ranks fits in 31 bits.
    - a module holds at most one mesh.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$axes, DenseI64ArrayAttr:$shape);
  let assemblyFormat = "$sym_name $axes $shape attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The mesh of the module around `op`, or null.
    static MeshOp lookup(::mlir::Operation *op);

    /// Product of the extents.
    int64_t getNumRanks();
  }];
}

def Piper_StreamOp : Piper_SymbolOp<"stream"> {
  let summary = "an execution resource of every rank, with a budget";
  let description = [{
    Operations that name a stream run on it one after the other, in their order in the graph; operations on
    different streams may overlap. `sms` is the budget: streaming multiprocessors on a GPU, cores on a CPU;
    absent = whatever is left.

    Example:
    ```mlir
    piper.stream @dp {sms = 20 : i64}
    ```

    Constraints:
    - `sms`, where given, is positive.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$sms);
  let assemblyFormat = "$sym_name attr-dict";
}

def Piper_StateOp : Piper_SymbolOp<"state"> {
  let summary = "a parameter, buffer or constant of the model";
  let description = [{
    One logical tensor, whatever the number of ranks that hold it. `names` are the names the model gives it:
    several for tied weights, the symbol's own first.

    Example:
    ```mlir
    piper.state @"a.weight" : tensor<64x64xf32> parameter trainable ["a.weight", "head.weight"]
    ```

    Constraints:
    - the type is a ranked tensor of static shape, of integers or floating-point numbers.
    - `trainable` only on a parameter of floating-point type.
    - `names` starts with the symbol's name and repeats none.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, Piper_StateKind:$kind,
                       UnitAttr:$trainable, StrArrayAttr:$names);
  let assemblyFormat = "$sym_name `:` $type $kind (`trainable` $trainable^)? $names attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::mlir::cast<::mlir::RankedTensorType>(getType()); }
  }];
}

def Piper_OptimizerOp : Piper_SymbolOp<"optimizer"> {
  let summary = "the update rule of one parameter group";
  let description = [{
    `rule` names an elementwise formula; `config` holds what never changes during training (betas, eps,
    flags), `slots` the moments that each parameter owns, under the names that `torch.optim` gives them,
    `scalars` the names of the runtime scalars (learning rate and all that depends on the step), which the
    host gives at each step in this order.

    Example:
    ```mlir
    piper.optimizer @group0 "adamw" slots ["exp_avg", "exp_avg_sq"] scalars ["step_size", "decay"]
        config {beta1 = 0.9 : f64, beta2 = 0.999 : f64, eps = 1.0e-8 : f64}
    ```

    Constraints:
    - `rule` is `sgd`, `adam` or `adamw`.
    - `slots` are the rule's and distinct: `momentum_buffer` of sgd; `exp_avg`, `exp_avg_sq` and
      `max_exp_avg_sq` of adam and adamw.
    - `scalars` are distinct and not empty strings; `config` holds numbers and booleans only.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$rule, StrArrayAttr:$slots,
                       StrArrayAttr:$scalars, DictionaryAttr:$config);
  let assemblyFormat = "$sym_name $rule `slots` $slots `scalars` $scalars `config` $config attr-dict";
  let hasVerifier = 1;
}

def Piper_BucketOp
    : Piper_SymbolOp<"bucket", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "states that are stored, reduced and updated as one flat vector";
  let description = [{
    States lie one behind the other in a flat vector of `elements` elements; `padded` rounds that up so that
    it divides into equal parts. `ranks` is the group that holds the bucket, in position order. With
    `shard_params` a rank keeps only its part of the parameters, with `shard_grads` of the reduced gradient,
    with `shard_optimizer` of the moments (and updates only that part); part p is elements
    [p * padded / n, (p + 1) * padded / n). Without `optimizer` nothing is updated: buffers, constants and
    frozen parameters.

    Example:
    ```mlir
    piper.bucket @bucket0 [@"a.weight", @"a.bias"] offsets [0, 4096] elements 4160 padded 4160
        ranks [0, 1] optimizer @group0 {shard_optimizer, reduce_stream = @dp}
    ```

    Constraints:
    - `states` are `piper.state` symbols of one element type, at least one; with `optimizer`, trainable.
    - no two buckets that share a rank hold the same state.
    - one offset per state; states do not overlap, are in ascending order and end within `elements`.
    - `elements` is positive; `padded` is at least `elements` and a multiple of the number of ranks.
    - `ranks` are distinct and inside the mesh, at least one.
    - `shard_grads` needs `shard_optimizer`; `shard_params` needs `shard_grads`.
    - `optimizer`, `gather_stream` and `reduce_stream` name operations of these kinds.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefArrayAttr:$states,
                       DenseI64ArrayAttr:$offsets, ConfinedAttr<I64Attr, [IntPositive]>:$elements,
                       ConfinedAttr<I64Attr, [IntPositive]>:$padded,
                       DenseI64ArrayAttr:$ranks, OptionalAttr<FlatSymbolRefAttr>:$optimizer,
                       UnitAttr:$shard_params, UnitAttr:$shard_grads, UnitAttr:$shard_optimizer,
                       OptionalAttr<FlatSymbolRefAttr>:$gather_stream,
                       OptionalAttr<FlatSymbolRefAttr>:$reduce_stream);
  let assemblyFormat = [{
    $sym_name $states `offsets` $offsets `elements` $elements `padded` $padded `ranks` $ranks
    (`optimizer` $optimizer^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Elements that one rank owns of what is sharded.
    int64_t getShardElements() { return getPadded() / static_cast<int64_t>(getRanks().size()); }

    /// Where `state` starts in the flat vector, or nothing if it is not in this bucket.
    std::optional<int64_t> getOffset(::llvm::StringRef state);
  }];
}

def Piper_ChunkOp : Piper_SymbolOp<"chunk", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a family of functions that do one piece of the model, keyed by a binding of named sizes";
  let description = [{
    `members` maps bindings to functions. A member's arguments are the operands of the node that calls the
    chunk, its results the node's results, in order; a bundle stands for several of them: `operand_counts`
    and `result_counts` say how many arguments and results of the function each operand and result of the
    node stands for (1 for a tensor).

    Example:
    ```mlir
    piper.chunk @block_F F operands [1, 1] results [1, 3]
        [ {binding = {rows = 4 : i64}, function = @block_F_rows4}, {binding = {rows = 3 : i64}, function = @block_F_rows3} ]
    ```

    Constraints:
    - `members` are dictionaries of `binding` (names to positive integers) and `function`, at least one.
    - bindings are distinct and bind the same names.
    - every `function` is a `func.func` with as many arguments as `operand_counts` adds up to, and results
      likewise.
    - arguments and results are ranked tensors; all members agree in their ranks and element types.
    - counts are from 0 (an empty bundle) to 2^31 - 1.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Piper_PassKind:$pass,
                       DenseI64ArrayAttr:$operand_counts, DenseI64ArrayAttr:$result_counts,
                       TypedArrayAttrBase<DictionaryAttr, "members">:$members);
  let assemblyFormat = "$sym_name $pass `operands` $operand_counts `results` $result_counts $members attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The function bound to `rows`, or null.
    ::mlir::FlatSymbolRefAttr lookupMember(int64_t rows);

    /// The functions of the members, in order.
    ::llvm::SmallVector<::mlir::FlatSymbolRefAttr> getFunctions();
  }];
}

#endif // PIPER_SYMBOL_OPS_TD
