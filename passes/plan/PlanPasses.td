// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PlanPasses.td - from the scheduled graph to plans ---------------------===//

#ifndef PIPER_PLAN_PASSES_TD
#define PIPER_PLAN_PASSES_TD

include "mlir/Pass/PassBase.td"

def DonateBundles : Pass<"piper-donate-bundles", "::mlir::ModuleOp"> {
  let summary = "Marks saved values that their one reader may overwrite";
  let description = [{
    An argument of a function is marked `piper.donated` if at every call it belongs to a bundle that nothing but this call reads. Kernels then update it in place
    (`x` in `piper.plan.kernel`), so that everybody who plans memory and order knows.
  }];
}

def Partition : Pass<"piper-partition", "::mlir::ModuleOp"> {
  let summary = "Makes one piper.plan per class of ranks that do the same";
  let description = [{
    Ranks are in one class if they take part in the same operations with the same function members. Every operation becomes the actions of the classes that take part, in
    graph order; values become buffers (not placed yet), parts of the state space, of inputs or of the scalar area. The graphs are erased.

    Flags of a run: "fresh" (gradients and the scale start from zero), "reduce" (gradient collectives run), "update" (the optimizer runs), "buffers" (written buffers are stored).
  }];
}

def AssignEvents : Pass<"piper-assign-events", "::mlir::ModuleOp"> {
  let summary = "Orders the streams of a class where data needs it";
  let description = [{
    Inserts record and wait between actions of two streams that touch the same memory, one of them writing, unless other events imply the order already; and a release where a message's
    source is overwritten.
  }];
}

def PlanMemory : Pass<"piper-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Gives every buffer an offset in the arena";
  let description = [{
    Two buffers may share memory if every use of one comes before the first use of the other. Where that order is only the graph's and not one of events, planning adds the wait or
    release, if the saving is worth it and cannot deadlock: waits only point backwards in the order of the whole cluster.
  }];
  let statistics = [
    Statistic<"numBuffers", "buffers", "Buffers of all rank classes">,
    Statistic<"arenaBytes", "arena-bytes", "Bytes of the largest arena of a rank">
  ];
}

def MaterializeUpdates : Pass<"piper-materialize-updates", "::mlir::ModuleOp"> {
  let summary = "Writes the functions of optimizer steps";
  let description = [{
    `@update_<rule>_<optimizer>_<n>(param, gradient, slots..., scalars, scale)` on memrefs of n elements, in place, in the order of operations of torch.optim's single-tensor path. `scale` is
    [loss_sum, weight_sum]: the gradient is first multiplied by 1 / weight_sum; where that is 0 nothing changes.

    Scalars by name: "lr", "weight_decay", "momentum", "dampening", "step_size", "bias_correction2_sqrt", "first_step" and so on: see UpdateRules.cpp.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::func::FuncDialect"];
}

def VerifyPlanned : Pass<"piper-verify-planned", "::mlir::ModuleOp"> {
  let summary = "Proves a plan free of deadlock and race";
  let description = [{
    Over all classes: stream order, events, messages, releases and collectives (a meeting of all members) have no cycle, for sends that wait for their receiver and for sends that don't; each communicator
    sees one order; each receive meets its send. In each class: conflicting accesses are ordered, buffers that share memory are live at different times, values are written before they are read.
    Where partition has noted who wrote what an action reads (`sources`, `results`), that is still so.
    Sets `piper.phase` to "planned".
  }];
}

def ExportPlan : Pass<"piper-export-plan", "::mlir::ModuleOp"> {
  let summary = "Writes the plan file of a planned module";
  let options = [
    Option<"output", "output", "std::string", "\"-\"", "path of the file, - for standard output">,
    Option<"text", "text", "bool", "false", "readable text instead of the binary form">,
  ];
}

def ImportPlan : Pass<"piper-import-plan", "::mlir::ModuleOp"> {
  let summary = "Replaces the module's content by that of a plan file";
  let options = [Option<"input", "input", "std::string", "\"-\"", "path of the file, - for standard input">];
  let dependentDialects = ["::piper::PiperDialect"];
}

#endif // PIPER_PLAN_PASSES_TD
