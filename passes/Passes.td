// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Passes.td - Piper's passes --------------------------------------------===//

#ifndef PIPER_PASSES_TD
#define PIPER_PASSES_TD

include "mlir/Pass/PassBase.td"
include "passes/lowering/Passes.td"
include "passes/plan/PlanPasses.td"

//===----------------------------------------------------------------------===//
// Scheduling: the passes of piper-schedule-pipeline, in its order.
//===----------------------------------------------------------------------===//

def Split : Pass<"piper-split", "::mlir::ModuleOp"> {
  let summary = "Applies `split`: copies the graphs once per microbatch";
  let description = [{
    Every node gets the tag `dim_name` with the index of its microbatch. Reads of states and inputs that are not split are shared. A buffer is handed from
    microbatch to microbatch. The sums of losses and weights become `piper.accumulate`s. The filter must match every node of every graph.
  }];
  let statistics = [
    Statistic<"numNodes", "compute-nodes", "Compute nodes of all microbatches">
  ];
}

def Place : Pass<"piper-place", "::mlir::ModuleOp"> {
  let summary = "Applies `place`: device groups, and the transfers between them";
  let description = [{
    A node without annotation (a sum of gradients, say) goes where it is used. Without any `place` directive, `replicate` gives the groups; without either, the mesh
    must be one rank. Groups are equal or have no rank in common, and transfers join groups of one size.
  }];
  let statistics = [
    Statistic<"numTransfers", "transfers", "Values that are sent from one device group to another">
  ];
}

def Replicate : Pass<"piper-replicate", "::mlir::ModuleOp"> {
  let summary = "Applies `replicate`: buckets, reductions and updates";
  let description = [{
    All states come to lie in `piper.bucket`s; trainable ones in one for all groups that use them (tied over pipeline stages: the union of the groups, which then
    keeps whole parameters even under shard_params), others in one per group. A directive concerns the matched nodes whose group lies in its devices.
  }];
  let statistics = [
    Statistic<"numBuckets", "buckets", "Buckets of parameters">,
    Statistic<"numCollectives", "collectives", "Collectives of all buckets and of the loss">
  ];
}

def Order : Pass<"piper-order", "::mlir::ModuleOp"> {
  let summary = "Applies `order`: tokens between consecutive groups";
  let description = [{
    A token joins nodes that have a rank in common. Groups that match nothing in a graph (backwards, in a graph without) are skipped there; a filter that matches nothing
    in any graph is an error, and so is an order that contradicts the data.
  }];
  let statistics = [
    Statistic<"numTokens", "tokens", "Orders that data does not give">
  ];
}

def ListSchedule : Pass<"piper-list-schedule", "::mlir::ModuleOp"> {
  let summary = "Gives each graph one global order";
  let description = [{
    Greedy simulation: at each moment a free stream starts the ready operation of the oldest microbatch, then the one with the longest path behind it. Without `order`, as many
    microbatches are alive in a group as fill the pipeline behind it. Receives follow their sends; gathers of sharded parameters come one node ahead of their use,
    two nodes' parameters whole at a time; contributions are sorted in the order they are made in.
  }];
}

def Specialize : Pass<"piper-specialize", "::mlir::ModuleOp"> {
  let summary = "Resolves each node to the member functions of its chunk";
}

def VerifyScheduled : Pass<"piper-verify-scheduled", "::mlir::ModuleOp"> {
  let summary = "Proves the scheduled phase and closes it";
  let description = [{
    Everything has its ranks, stream and functions; nothing of the imported phase is left; messages are received in the order they are sent in; no deadlock, neither with
    sends that wait nor with sends that do not; each contribution is reduced and applied once. Then the strategy, now applied, is erased and `piper.phase` set.
  }];
}

def PrintSchedule : Pass<"piper-print-schedule", "::mlir::ModuleOp"> {
  let summary = "Proves and prints a schedule, one line per rank, for no particular module";
  let options = [
    Option<"name", "name", "std::string", "\"1f1b\"", "Name of the schedule">,
    Option<"stages", "stages", "int64_t", "2", "Number of pipeline stages">,
    Option<"microbatches", "microbatches", "int64_t", "4", "Number of microbatches">,
    Option<"ranks", "ranks", "int64_t", "0", "Number of ranks; 0: as many as stages, or half as many where a rank has several">,
    Option<"file", "file", "std::string", "\"\"", "CSV file of torch.distributed.pipelining to read instead">,
    Option<"format", "format", "std::string", "\"rows\"",
           "rows; csv; or, at unit costs, times (a line per rank) or timeline (a picture)">,
  ];
}

#endif // PIPER_PASSES_TD
