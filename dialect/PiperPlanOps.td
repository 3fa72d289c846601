// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The planned phase: one operation per record of runtime/plan/Plan.h, which says what each means at run time.

#ifndef PIPER_PLAN_OPS_TD
#define PIPER_PLAN_OPS_TD

include "dialect/PiperDialect.td"
include "dialect/PiperEnums.td"
include "dialect/PiperInterfaces.td"
include "dialect/PiperPlanAttrs.td"
include "mlir/IR/SymbolInterfaces.td"

//===----------------------------------------------------------------------===//
// The cluster
//===----------------------------------------------------------------------===//

def Piper_CommunicatorOp : Piper_Op<"plan.communicator", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "groups of ranks that communicate";
  let description = [{
    A rank's position is its index inside its group. Sends and receives use a channel: a communicator whose groups are pairs, sender and receiver.

    Example:
    ```mlir
    piper.plan.communicator @dp_stream.0 [[0, 1]]
    piper.plan.communicator @pp_stream.p2p.1 [[0, 2], [1, 3]]
    ```

    Constraints:
    - at least one group, no group empty, ranks not negative, no rank twice.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ArrayAttr:$groups);
  let assemblyFormat = "$sym_name custom<Groups>($groups) attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<int64_t> getGroup(unsigned i) { return ::llvm::cast<::mlir::DenseI64ArrayAttr>(getGroups()[i]).asArrayRef(); }
    unsigned getNumGroups() { return getGroups().size(); }
    /// Group and position of a rank, if it has one.
    std::optional<std::pair<unsigned, int64_t>> findPosition(int64_t rank);
    /// Members of the largest group.
    int64_t getMaxGroupSize();
  }];
}

def Piper_KernelOp : Piper_Op<"plan.kernel", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "a compiled function that launches name";
  let description = [{
    `pointer_bytes` are the bytes it may touch behind each pointer (arguments, then results). `access` has one letter per pointer: r (read), w (written
    completely) or x (updated in place); empty where it is not known.

    Example:
    ```mlir
    piper.plan.kernel "block_F_rows4" [65536, 262144, 65536] "rrw" workspace 4096
    ```

    Constraints:
    - sizes are not negative; `access` is empty or has one letter r, w or x per pointer.
  }];
  let arguments = (ins StrAttr:$name, DenseI64ArrayAttr:$pointer_bytes, StrAttr:$access, DefaultValuedAttr<I64Attr, "0">:$workspace);
  let assemblyFormat = "$name $pointer_bytes $access (`workspace` $workspace^)? attr-dict";
  let hasVerifier = 1;
}

def Piper_PlanStateOp : Piper_Op<"plan.state", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "a named tensor that outlives a run, and where ranks hold it";
  let description = [{
    Example:
    ```mlir
    piper.plan.state "a.weight" parameter : tensor<64x64xf32> [#piper.segment<@class0 state at 0 element 0 count 4096>]
    ```

    Constraints:
    - the type is a ranked tensor of static shape.
    - segments lie in the arena or in the state space, with positive counts.
  }];
  let arguments = (ins StrAttr:$name, Piper_PlanStateKind:$kind, TypeAttr:$type, ArrayAttr:$segments);
  let assemblyFormat = "$name $kind `:` $type $segments attr-dict";
  let hasVerifier = 1;
}

def Piper_PlanInputOp : Piper_Op<"plan.input", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "a host tensor given to each run";
  let description = [{
    Inputs are numbered in their order in the module. One that is not divided by rows has one row.

    Example:
    ```mlir
    piper.plan.input "args.0" : i64 rows 16 row_bytes 512
    ```

    Constraints:
    - rows are positive, row bytes not negative.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$type, I64Attr:$rows, I64Attr:$row_bytes);
  let assemblyFormat = "$name `:` $type `rows` $rows `row_bytes` $row_bytes attr-dict";
  let hasVerifier = 1;
}

def Piper_PlanScalarOp : Piper_Op<"plan.scalar", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "a number that the host writes before a run";
  let description = [{
    Example:
    ```mlir
    piper.plan.scalar "group0.lr" : f32 at 0
    ```

    Constraints:
    - the type is f32, f64, i32 or i64; the offset is not negative and a multiple of its size.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$type, I64Attr:$offset);
  let assemblyFormat = "$name `:` $type `at` $offset attr-dict";
  let hasVerifier = 1;
}

def Piper_PlanOutputOp : Piper_Op<"plan.output", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "a value that the host reads after a run from the ranks of a class";
  let description = [{
    Example:
    ```mlir
    piper.plan.output "loss_sum" : tensor<f32> of @class0 scalar[64]
    ```

    Constraints:
    - the type is a ranked tensor of static shape.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$type, FlatSymbolRefAttr:$rank_class, Piper_AddressAttr:$address);
  let assemblyFormat = "$name `:` $type `of` $rank_class custom<AddressOperand>($address) attr-dict";
  let hasVerifier = 1;
}

def Piper_PlanOp : Piper_Op<"plan", [Symbol, HasParent<"::mlir::ModuleOp">, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "what the ranks of one class do";
  let description = [{
    The ranks of a class execute the same actions; they differ in their positions in communicators only. The body holds `piper.plan.stream` operations, numbered in their order,
    then one `piper.plan.entry` per entry point. Sizes in bytes: `arena` (working memory; 0 before memory planning), `state`, `scalar`, and `peak` (end of the arena that is touched).

    Example:
    ```mlir
    piper.plan @class0 ranks [0, 1] arena 65536 state 1048576 scalar 64 peak 65536 events 4 {
      piper.plan.stream @compute
      piper.plan.entry "step" { ... }
    }
    ```

    Constraints:
    - at least one rank, none twice, none negative; sizes are not negative; `peak` is at most `arena`.
    - streams and entries have distinct names; every action names a stream of its class and events below `events`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$ranks, I64Attr:$arena, I64Attr:$state, I64Attr:$scalar, I64Attr:$peak, I64Attr:$events);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `ranks` $ranks `arena` $arena `state` $state `scalar` $scalar `peak` $peak `events` $events attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Piper_PlanStreamOp : Piper_Op<"plan.stream", [HasParent<"PlanOp">]> {
  let summary = "a stream of a class: a queue of actions";
  let description = [{
    Example:
    ```mlir
    piper.plan.stream @compute workspace 4096 cores 2
    ```

    Constraints:
    - workspace bytes and cores are not negative.
  }];
  let arguments = (ins FlatSymbolRefAttr:$name, DefaultValuedAttr<I64Attr, "0">:$workspace, DefaultValuedAttr<I64Attr, "0">:$cores);
  let assemblyFormat = "$name (`workspace` $workspace^)? (`cores` $cores^)? attr-dict";
  let hasVerifier = 1;
}

def Piper_EntryOp : Piper_Op<"plan.entry", [HasParent<"PlanOp">, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "the actions of one entry point, and the buffers they use";
  let description = [{
    Actions stand in one order that respects every dependency; a stream executes its own in that order.

    Example:
    ```mlir
    piper.plan.entry "step" {
      piper.plan.buffer 0 "stage=0 MB=0 F" kind "saved" bytes 4096 at 0 live 0 to 5
      piper.plan.launch "block_F_rows4" (input 0[0], state[0], arena[0]) on @compute
    }
    ```

    Constraints:
    - the body holds buffers and actions only; buffers have distinct numbers.
  }];
  let arguments = (ins StrAttr:$name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Piper_BufferOp : Piper_Op<"plan.buffer", [HasParent<"EntryOp">]> {
  let summary = "working memory with a lifetime";
  let description = [{
    Before memory planning addresses name a buffer by its number. Planning gives it an `offset` in the arena, and the first and last of the entry's actions (counted from 0,
    synchronisation included) between which it is live.

    Example:
    ```mlir
    piper.plan.buffer 3 "stage=0 MB=1 F" kind "saved" bytes 4096 at 8192 live 4 to 17
    ```

    Constraints:
    - the number is not negative, bytes are positive.
    - `offset`, `first` and `last` are present together; 0 <= first <= last.
  }];
  let arguments = (ins I64Attr:$number, StrAttr:$label, StrAttr:$kind, I64Attr:$bytes, OptionalAttr<I64Attr>:$offset, OptionalAttr<I64Attr>:$first, OptionalAttr<I64Attr>:$last);
  let assemblyFormat = "$number $label `kind` $kind `bytes` $bytes (`at` $offset^ `live` $first `to` $last)? attr-dict";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

// `when` names the flag of a run under which the action happens; "!flag": unless it is set. `position` is the place of the action in the order of the whole cluster.
class Piper_ActionOp<string mnemonic, string format, dag specific, list<Trait> traits = []>
    : Piper_Op<mnemonic, !listconcat([HasParent<"EntryOp">, DeclareOpInterfaceMethods<Piper_ActionOpInterface>], traits)> {
  let arguments = !con(specific, (ins FlatSymbolRefAttr:$stream, OptionalAttr<StrAttr>:$when, OptionalAttr<StrAttr>:$label, OptionalAttr<I64Attr>:$position));
  let assemblyFormat = format # " `on` $stream (`when` $when^)? (`label` $label^)? (`position` $position^)? attr-dict";
  let hasVerifier = 1;
}

def Piper_LaunchOp : Piper_ActionOp<"plan.launch", "$kernel custom<Addresses>($pointers)", (ins StrAttr:$kernel, ArrayAttr:$pointers)> {
  let summary = "runs a kernel";
  let description = [{
    Example:
    ```mlir
    piper.plan.launch "block_F_rows4" (input 0[0 + @group0 * 1024], state[0], arena[0]) on @compute label "F stage=0 MB=0"
    ```

    Constraints:
    - every pointer is an address of at least 0.
  }];
}

def Piper_CopyOp : Piper_ActionOp<"plan.copy", "custom<AddressOperand>($dst) `,` custom<AddressOperand>($src) `bytes` $bytes",
                                  (ins Piper_AddressAttr:$dst, Piper_AddressAttr:$src, I64Attr:$bytes)> {
  let summary = "copies bytes";
  let description = [{
    Example:
    ```mlir
    piper.plan.copy state[256], arena[0] bytes 24 on @compute when "buffers"
    ```

    Constraints:
    - bytes are positive.
  }];
}

def Piper_FillZeroOp : Piper_ActionOp<"plan.fill_zero", "custom<AddressOperand>($dst) `bytes` $bytes", (ins Piper_AddressAttr:$dst, I64Attr:$bytes)> {
  let summary = "sets bytes to zero";
  let description = [{
    Example:
    ```mlir
    piper.plan.fill_zero arena[0] bytes 256 on @compute
    ```

    Constraints:
    - bytes are positive.
  }];
}

def Piper_PlanAccumulateOp : Piper_ActionOp<"plan.accumulate", "$mode custom<AddressOperand>($dst) `,` custom<AddressOperand>($src) `:` $type `count` $count",
                                            (ins StrAttr:$mode, Piper_AddressAttr:$dst, Piper_AddressAttr:$src, TypeAttr:$type, I64Attr:$count)> {
  let summary = "adds a vector to another in place";
  let description = [{
    dst = base + src. `mode` is "add" (base is dst), "write" (base is 0) or the name of a flag (0 if it is set in this run, else dst).

    Example:
    ```mlir
    piper.plan.accumulate "fresh" state[4096], arena[0] : f32 count 4096 on @compute
    ```

    Constraints:
    - the type is a floating-point type, `count` is positive.
  }];
}

class Piper_EventOp<string mnemonic> : Piper_ActionOp<mnemonic, "$event", (ins I64Attr:$event)>;

def Piper_RecordOp : Piper_EventOp<"plan.record"> {
  let summary = "marks that everything before it in this stream is done";
  let description = [{
    Example:
    ```mlir
    piper.plan.record 3 on @compute
    ```

    Constraints:
    - no other record of the entry has this event.
  }];
}

def Piper_WaitOp : Piper_EventOp<"plan.wait"> {
  let summary = "holds its stream until an event is recorded";
  let description = [{
    Example:
    ```mlir
    piper.plan.wait 3 on @pp_stream
    ```

    Constraints:
    - a record of this event stands before it in the entry.
  }];
}

class Piper_MessageOp<string mnemonic, string operand, dag specific>
    : Piper_ActionOp<mnemonic, "custom<AddressOperand>($" # operand # ") `bytes` $bytes `through` $communicator", specific>;

def Piper_PlanSendOp : Piper_MessageOp<"plan.send", "src", (ins Piper_AddressAttr:$src, I64Attr:$bytes, FlatSymbolRefAttr:$communicator)> {
  let summary = "posts a message and returns";
  let description = [{
    The source stays untouched until the message is released.

    Example:
    ```mlir
    piper.plan.send arena[0] bytes 4096 through @pp_stream.p2p.1 on @pp_stream
    ```

    Constraints:
    - bytes are positive.
  }];
}

def Piper_PlanRecvOp : Piper_MessageOp<"plan.recv", "dst", (ins Piper_AddressAttr:$dst, I64Attr:$bytes, FlatSymbolRefAttr:$communicator)> {
  let summary = "waits for the next message of a channel and copies it";
  let description = [{
    Example:
    ```mlir
    piper.plan.recv arena[0] bytes 4096 through @pp_stream.p2p.1 on @pp_stream
    ```

    Constraints:
    - as `piper.plan.send`.
  }];
}

def Piper_ReleaseOp : Piper_ActionOp<"plan.release", "$message `of` $communicator", (ins I64Attr:$message, FlatSymbolRefAttr:$communicator)> {
  let summary = "waits until the receiver has acknowledged a message";
  let description = [{
    `message` counts this class's sends on the channel in this entry, from 0.

    Example:
    ```mlir
    piper.plan.release 0 of @pp_stream.p2p.1 on @compute
    ```

    Constraints:
    - the message is not negative.
  }];
}

class Piper_PlanCollectiveOp<string mnemonic, string extra = "", dag specific = (ins)>
    : Piper_ActionOp<mnemonic, extra # " custom<AddressOperand>($src) `to` custom<AddressOperand>($dst) `:` $type `count` $count `over` $communicator",
                     !con(specific, (ins Piper_AddressAttr:$src, Piper_AddressAttr:$dst, TypeAttr:$type, I64Attr:$count, FlatSymbolRefAttr:$communicator))>;

def Piper_PlanAllReduceOp : Piper_PlanCollectiveOp<"plan.all_reduce", "$reduction", (ins Piper_Reduction:$reduction)> {
  let summary = "combines `count` elements of every member, for every member";
  let description = [{
    Example:
    ```mlir
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 4160 over @dp_stream.0 on @dp_stream when "reduce"
    ```

    Constraints:
    - `count` is positive.
  }];
}

def Piper_PlanReduceScatterOp : Piper_PlanCollectiveOp<"plan.reduce_scatter", "$reduction", (ins Piper_Reduction:$reduction)> {
  let summary = "combines the members' elements; each keeps `count` of them";
  let description = [{
    Example:
    ```mlir
    piper.plan.reduce_scatter sum state[0] to state[16640] : f32 count 2080 over @dp_stream.0 on @dp_stream when "reduce"
    ```

    Constraints:
    - `count` is positive.
  }];
}

def Piper_PlanAllGatherOp : Piper_PlanCollectiveOp<"plan.all_gather"> {
  let summary = "puts `count` elements of each member one behind the other";
  let description = [{
    Example:
    ```mlir
    piper.plan.all_gather state[0] to arena[0] : f32 count 2080 over @gather_stream.0 on @gather_stream
    ```

    Constraints:
    - `count` is positive.
  }];
}

def Piper_PlanBroadcastOp : Piper_PlanCollectiveOp<"plan.broadcast", "$root", (ins I64Attr:$root)> {
  let summary = "gives every member `count` elements of the member at position `root`";
  let description = [{
    Example:
    ```mlir
    piper.plan.broadcast 0 arena[0] to arena[0] : f32 count 8 over @comm.0 on @comm
    ```

    Constraints:
    - `count` is positive, `root` not negative.
  }];
}

def Piper_PlanAllToAllOp : Piper_PlanCollectiveOp<"plan.all_to_all"> {
  let summary = "exchanges `count` elements between each two members";
  let description = [{
    Example:
    ```mlir
    piper.plan.all_to_all arena[0] to arena[4096] : f32 count 16 over @ep.0 on @ep
    ```

    Constraints:
    - `count` is positive.
  }];
}

#endif // PIPER_PLAN_OPS_TD
