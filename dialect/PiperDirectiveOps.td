// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PiperDirectiveOps.td - a strategy as data -----------------------------===//

#ifndef PIPER_DIRECTIVE_OPS_TD
#define PIPER_DIRECTIVE_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

def Piper_StrategyOp
    : Piper_Op<"strategy", [Symbol, HasParent<"::mlir::ModuleOp">, SingleBlock, NoTerminator,
                            IsolatedFromAbove, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a parallel training strategy";
  let description = [{
    Directives, which the scheduling pipeline applies to every graph of the module in the order split, place,
    replicate, order, whatever order they are written in; that counts only within one of these.

    A filter is a conjunction: tag = index, tag = "*" (present, any index) or tag = unit (present without
    index), and `PASS` = "F", "B", "I" or "W" (also "BI", "BW"). The empty filter matches everything.

    Example:
    ```mlir
    piper.strategy @strategy {
      piper.split {} "MB" into 8
      piper.place {stage = 0} on [0, 1] stream "pp_stream"
      piper.replicate {stage = "*"} on [0, 1] reduce_stream "dp_stream" {shard_optimizer, bucket_size = 25.0 : f64}
      piper.order [[ {stage = 0, MB = 0, PASS = "F"} ], [ {stage = 0, MB = 1, PASS = "F"} ]]
    }
    ```

    Constraints:
    - one block without arguments that holds directives only.
    - every device group's ranks are distinct and inside the module's mesh, at least one.
    - a module holds at most one strategy.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

class Piper_DirectiveOp<string mnemonic>
    : Piper_Op<mnemonic, [HasParent<"StrategyOp">, DeclareOpInterfaceMethods<Piper_DirectiveOpInterface>]> {
  let hasVerifier = 1;
}

def Piper_SplitOp : Piper_DirectiveOp<"split"> {
  let summary = "copies the matched part of the graph once per microbatch";
  let description = [{
    Each copy carries the tag `dim_name` with its index; rows are divided as `torch.tensor_split` does.
    Updates are not copied.

    Example:
    ```mlir
    piper.split {} "MB" into 8
    ```

    Constraints:
    - `filter` is a filter (see `piper.strategy`).
    - `dim_name` is not empty and not `PASS`.
    - `num_microbatches` is at least 1.
  }];
  let arguments = (ins DictionaryAttr:$filter, StrAttr:$dim_name, I64Attr:$num_microbatches);
  let assemblyFormat = "$filter $dim_name `into` $num_microbatches attr-dict";
}

def Piper_PlaceOp : Piper_DirectiveOp<"place"> {
  let summary = "puts the matched nodes on a device group";
  let description = [{
    Every value that crosses groups becomes a send and a receive on `stream`. Two directives that give one
    node two groups are refused by `piper-place`, which knows the nodes.

    Example:
    ```mlir
    piper.place {stage = 0} on [0, 1] stream "pp_stream"
    ```

    Constraints:
    - `filter` is a filter (see `piper.strategy`).
    - `devices` is not empty, ranks distinct and inside the mesh.
    - `stream` is not empty.
  }];
  let arguments = (ins DictionaryAttr:$filter, DenseI64ArrayAttr:$devices,
                       DefaultValuedStrAttr<StrAttr, "pp_stream">:$stream);
  let assemblyFormat = "$filter `on` $devices `stream` $stream attr-dict";
}

def Piper_ReplicateOp : Piper_DirectiveOp<"replicate"> {
  let summary = "data parallelism over a device group";
  let description = [{
    None sharded: gradients are all-reduced. `shard_optimizer` = ZeRO-1, with `shard_grads` = ZeRO-2, with
    `shard_params` = ZeRO-3. Parameters are gathered on `gather_stream`, gradients reduced on
    `reduce_stream`, in buckets of at most `bucket_size` MiB.

    Example:
    ```mlir
    piper.replicate {stage = 0} on [0, 1] gather_stream "gather" reduce_stream "dp" {bucket_size = 0.25 : f64, shard_optimizer}
    ```

    Constraints:
    - `filter` is a filter (see `piper.strategy`).
    - `devices` is not empty, ranks distinct and inside the mesh.
    - `bucket_size` is positive and finite.
    - `shard_grads` needs `shard_optimizer`; `shard_params` needs `shard_grads`.
    - stream names are not empty.
  }];
  let arguments = (ins DictionaryAttr:$filter, DenseI64ArrayAttr:$devices,
                       DefaultValuedStrAttr<StrAttr, "gather_stream">:$gather_stream,
                       DefaultValuedStrAttr<StrAttr, "reduce_stream">:$reduce_stream,
                       UnitAttr:$shard_params, UnitAttr:$shard_grads, UnitAttr:$shard_optimizer,
                       DefaultValuedAttr<F64Attr, "25.0">:$bucket_size);
  let assemblyFormat = [{
    $filter `on` $devices (`gather_stream` $gather_stream^)? (`reduce_stream` $reduce_stream^)? attr-dict
  }];
}

def Piper_OrderOp : Piper_DirectiveOp<"order"> {
  let summary = "runs groups of nodes one after the other";
  let description = [{
    `groups` is a list of groups, each a list of filters; tokens go from every node of a group to every node
    of the next. Members of a group may interleave.

    Example:
    ```mlir
    piper.order [[ {MB = 0, PASS = "F"} ], [ {MB = 1, PASS = "F"}, {MB = 0, PASS = "B"} ]]
    ```

    Constraints:
    - at least two groups, none empty.
    - their members are filters (see `piper.strategy`).
  }];
  let arguments = (ins ArrayAttr:$groups);
  let assemblyFormat = "$groups attr-dict";
}

#endif // PIPER_DIRECTIVE_OPS_TD
