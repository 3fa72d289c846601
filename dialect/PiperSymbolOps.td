// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Symbols: mesh, streams, state, buckets, optimizers and chunks.

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
    Ranks are numbered row-major: in a mesh `["pp", "dp"]` of shape `[2, 2]`, rank = pp * 2 + dp.

    Example:
    ```mlir
    piper.mesh @mesh ["pp", "dp"] [2, 2]
    ```

    Constraints:
    - `axes` and `shape` have the same length, at least one axis.
    - axis names are distinct and not empty.
    - every extent is at least 1.
    - a module holds at most one mesh.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$axes, DenseI64ArrayAttr:$shape);
  let assemblyFormat = "$sym_name $axes $shape attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Product of the extents.
    int64_t getNumRanks();
  }];
}

def Piper_StreamOp : Piper_SymbolOp<"stream"> {
  let summary = "an execution resource of every rank, with a budget";
  let description = [{
    Operations that name a stream run on it in their order in the graph. `sms` is the budget: streaming multiprocessors on a GPU, cores
    on a CPU; absent = whatever is left.

    Example:
    ```mlir
    piper.stream @compute
    piper.stream @comm {sms = 20 : i64}
    ```

    Constraints:
    - `sms`, where given, is positive.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$sms);
  let assemblyFormat = "$sym_name attr-dict";
}

def Piper_StateOp : Piper_SymbolOp<"state"> {
  let summary = "a parameter, buffer or constant of the model";
  let description = [{
    One logical tensor, whatever the number of ranks that hold it. `names` are the names the model gives it (several for tied weights; the
    first is the symbol's own).

    Example:
    ```mlir
    piper.state @"embed.weight" : tensor<512x256xf32> parameter trainable ["embed.weight", "head.weight"]
    ```

    Constraints:
    - the type is a ranked tensor of static shape.
    - `trainable` only on a parameter of floating-point type.
    - `names` is not empty.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, Piper_StateKind:$kind, UnitAttr:$trainable, StrArrayAttr:$names);
  let assemblyFormat = "$sym_name `:` $type $kind (`trainable` $trainable^)? $names attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::mlir::cast<::mlir::RankedTensorType>(getType()); }
  }];
}

def Piper_OptimizerOp : Piper_SymbolOp<"optimizer"> {
  let summary = "the update rule of one parameter group";
  let description = [{
    `rule` names an elementwise formula (`sgd`, `adam`, `adamw`); `config` holds what never changes during training (betas, eps, flags),
    `slots` the moments that each parameter owns, `scalars` the names of the runtime scalars (learning rate and all that depends on the
    step), which the host gives at each step in this order.

    Example:
    ```mlir
    piper.optimizer @group0 "adamw" slots ["exp_avg", "exp_avg_sq"] scalars ["step_size", "decay", "bias_correction2_sqrt"]
      config {beta1 = 0.9 : f64, beta2 = 0.999 : f64, eps = 1.0e-8 : f64}
    ```

    Constraints:
    - `rule` is a known rule, and `config`, `slots` and `scalars` are those of the rule.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$rule, StrArrayAttr:$slots, StrArrayAttr:$scalars, DictionaryAttr:$config);
  let assemblyFormat = "$sym_name $rule `slots` $slots `scalars` $scalars `config` $config attr-dict";
  let hasVerifier = 1;
}

def Piper_BucketOp : Piper_SymbolOp<"bucket"> {
  let summary = "parameters that are stored, reduced and updated as one flat vector";
  let description = [{
    States lie one behind the other in a flat vector of `elements` elements; `padded` rounds that up to a multiple of the group's size. `ranks` is the group that holds
    the bucket, in position order. With `shard_params` a rank keeps only its part of the parameters, with `shard_grads` of the reduced gradient, with
    `shard_optimizer` of the moments (and updates only that part); part p is elements [p * padded / n, (p + 1) * padded / n).

    Example:
    ```mlir
    piper.bucket @bucket0 [@"a.weight", @"a.bias"] offsets [0, 4096] elements 4160 padded 4160 ranks [0, 1] optimizer @group0 {shard_optimizer}
    ```

    Constraints:
    - `states` are `piper.state` symbols of one element type, each in exactly one bucket per rank; `offsets` has one entry per state, ascending, not overlapping.
    - `padded` is a multiple of the number of ranks and at least `elements`; `ranks` are distinct.
    - `shard_grads` needs `shard_optimizer`; `shard_params` needs `shard_grads`.
    - `optimizer` is present exactly where the states are trainable and have gradients.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefArrayAttr:$states, DenseI64ArrayAttr:$offsets, I64Attr:$elements, I64Attr:$padded,
                   DenseI64ArrayAttr:$ranks, OptionalAttr<FlatSymbolRefAttr>:$optimizer, UnitAttr:$shard_params, UnitAttr:$shard_grads, UnitAttr:$shard_optimizer,
                   OptionalAttr<FlatSymbolRefAttr>:$gather_stream, OptionalAttr<FlatSymbolRefAttr>:$reduce_stream);
  let assemblyFormat = [{
    $sym_name $states `offsets` $offsets `elements` $elements `padded` $padded `ranks` $ranks (`optimizer` $optimizer^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Elements that one rank owns of what is sharded.
    int64_t getShardElements() { return getPadded() / static_cast<int64_t>(getRanks().size()); }
  }];
}

def Piper_ChunkOp : Piper_SymbolOp<"chunk"> {
  let summary = "a family of functions that do one piece of the model, keyed by a binding of named sizes";
  let description = [{
    `members` maps bindings to functions: `{binding = {rows = 4 : i64}, function = @f_rows4}`. A member's arguments are the operands of the node that calls the
    chunk, its results the node's results, in order; a bundle stands for several of them: `operand_counts` and `result_counts` say how many function
    arguments and results each operand and result of the node stands for (1 for a tensor).

    Example:
    ```mlir
    piper.chunk @block_F F operands [1, 1] results [1, 7] [ {binding = {rows = 4 : i64}, function = @block_F_rows4} ]
    ```

    Constraints:
    - at least one member; bindings are distinct; all bind the same names; every function exists.
    - each function has as many arguments as `operand_counts` adds up to, results likewise, and all members agree in rank and element types.
    - counts are at least 0 (an empty bundle), and at least one member is not empty.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Piper_PassKind:$pass, DenseI64ArrayAttr:$operand_counts, DenseI64ArrayAttr:$result_counts,
                   TypedArrayAttrBase<DictionaryAttr, "members">:$members);
  let assemblyFormat = "$sym_name $pass `operands` $operand_counts `results` $result_counts $members attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The function bound to `rows`, or null.
    ::mlir::FlatSymbolRefAttr lookupMember(int64_t rows);
  }];
}

#endif // PIPER_SYMBOL_OPS_TD
