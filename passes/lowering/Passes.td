// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Passes.td - from linalg to LLVM ---------------------------------------===//
//
// In the order in which the pipeline `piper-lower-to-llvm` runs them.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_LOWERING_PASSES_TD
#define PIPER_LOWERING_PASSES_TD

include "mlir/Pass/PassBase.td"

def VerifyKernel : Pass<"piper-verify-kernel", "::mlir::ModuleOp"> {
  let summary = "Checks that a module is one kernel that can be compiled";
  let description = [{
    A kernel module holds one public function with one block, whose arguments
    are tensors (inputs) or memrefs (updated in place) and whose results are
    tensors, all of static shape and of an element type that has a layout.
  }];
}

def InlineResources : Pass<"piper-inline-resources", "::mlir::ModuleOp"> {
  let summary = "Constants whose data stand beside the module move into it";
  let description = [{
    A `dense_resource` attribute names data that only the whole file holds: a
    function that is printed alone would lose them. Each becomes a `dense`
    attribute of the same type.
  }];
}

def GuardIndices : Pass<"piper-guard-indices", "::mlir::func::FuncOp"> {
  let summary = "Keeps indirect reads inside their tensor";
  let description = [{
    Clamps each index of a `tensor.extract` that is computed from data, and
    moves a `cf.assert` out of a `linalg.generic` into loops over the
    dimensions that its condition depends on: the loops over the others stay
    free of control flow.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::cf::ControlFlowDialect", "::mlir::tensor::TensorDialect"];
}

def FoldConversions : Pass<"piper-fold-conversions", "::mlir::func::FuncOp"> {
  let summary = "What is rounded to a smaller type and widened again stays as it was";
  let description = [{
    Of whole tensors, also through reshapes, and of elements within one loop.
    The rounded value stays for those who read it.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def MatmulToGemm : Pass<"piper-matmul-to-gemm", "::mlir::func::FuncOp"> {
  let summary = "Matrix products of f32 and bf16 become piper.gemm";
  let description = [{
    A transposed operand becomes a flag and a zero initial value becomes a
    product that overwrites. Products of bf16 are summed in f32; where nothing
    reads the result but a conversion to bf16, it is written as bf16 at once.
    Other element types stay with linalg.
  }];
  let dependentDialects = ["::piper::PiperDialect", "::mlir::tensor::TensorDialect"];
}

def Generalize : Pass<"piper-generalize", "::mlir::func::FuncOp"> {
  let summary = "Named linalg ops other than fill become linalg.generic";
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

def TrimWindows : Pass<"piper-trim-windows", "::mlir::func::FuncOp"> {
  let summary = "Operands of windows end where their last window ends";
  let description = [{
    A window addresses its operand by sums of loops, such as `2 * d + k`, which
    may leave a rest of the operand untouched. Where one of these loops runs
    once, folding it away makes `k` of that sum, and linalg demands that the
    operand then has exactly the extent of the loop `k`: the rest is sliced off.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def ExpandMath : Pass<"piper-expand-math", "::mlir::func::FuncOp"> {
  let summary = "Vectorizable f32 exp, tanh, erf and small powers";
  let description = [{
    Polynomials with no branch and no call, so that loops over them vectorize.
    exp is within 2 ulp and exact at 0, -inf, +inf and NaN.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def RelaxFloatingPoint : Pass<"piper-relax-floating-point", "::mlir::func::FuncOp"> {
  let summary = "Allows reductions to be reordered; NaN and infinity keep their meaning";
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def DecomposeConcat : Pass<"piper-decompose-concat", "::mlir::func::FuncOp"> {
  let summary = "tensor.concat becomes insertions into one tensor";
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def ComputeLate : Pass<"piper-compute-late", "::mlir::func::FuncOp"> {
  let summary = "What depends on arguments alone is computed where it is first used";
  let description = [{
    A backward makes values of its forward again from its arguments. Late they are
    shorter alive, and stand beside loops over the same rows.
  }];
}

def LibraryCallDestinations : Pass<"piper-library-call-destinations", "::mlir::func::FuncOp"> {
  let summary = "Gives each piper.library_call tensors to write to";
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def SplitFills : Pass<"piper-split-fills", "::mlir::func::FuncOp"> {
  let summary = "One tensor.empty and one linalg.fill per use";
  let description = [{
    A fill that is shared by two accumulations would be copied for one of them.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect", "::mlir::linalg::LinalgDialect"];
}

def UpdateInPlace : Pass<"piper-update-in-place", "::mlir::func::FuncOp"> {
  let summary = "An elementwise op writes over an operand that it reads last";
  let description = [{
    The operand is the result of a product or a library call, or an argument
    marked `piper.donated`. Results of the function stay where they are.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

def DestinationPassing : Pass<"piper-destination-passing", "::mlir::func::FuncOp"> {
  let summary = "Tensor arguments and results become memref arguments";
  let description = [{
    Inputs are read-only memrefs, but for those marked `piper.donated`, which may
    be overwritten; each result is written to a memref that comes after the
    arguments. A result that is an argument, a constant or equal to
    another result is copied.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::memref::MemRefDialect"];
}

def ForwardResults : Pass<"piper-forward-results", "::mlir::func::FuncOp"> {
  let summary = "An allocation that is copied to a result becomes the result";
  let description = [{
    Holds because nothing but that copy accesses the result's memory.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def CopyToGeneric : Pass<"piper-copy-to-generic", "::mlir::func::FuncOp"> {
  let summary = "memref.copy becomes a linalg.generic";
  let description = [{
    A strided memref.copy would call a generic run-time function; a loop is
    faster and can be grouped and outlined with others.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

def GroupRows : Pass<"piper-group-rows", "::mlir::func::FuncOp"> {
  let summary = "Consecutive linalg ops over the same rows share one loop";
  let description = [{
    Ops whose leading loops have equal extents become one loop nest over these,
    where no row of a later op needs another row of an earlier one. Buffers
    that only the group uses shrink to one row. Sums over all rows join in.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::arith::ArithDialect"];
}

def OutlineKernels : Pass<"piper-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Each loop nest becomes a function, equal ones only once";
  let description = [{
    Arguments are the buffers that the nest accesses, which are disjoint
    (noalias); views and constants are made again inside. Compile time then
    grows with distinct loop nests only.
  }];
}

def PlanWorkspace : Pass<"piper-plan-workspace", "::mlir::func::FuncOp"> {
  let summary = "Allocations become parts of one workspace argument";
  let description = [{
    Static plan by liveness and first fit. The size in bytes is kept in the
    attribute `piper.workspace_bytes` of the function.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect"];
}

def LowerKernelCalls : Pass<"piper-lower-kernel-calls", "::mlir::ModuleOp"> {
  let summary = "piper.gemm and piper.library_call become calls of C functions";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect"];
}

def LowerAsserts : Pass<"piper-lower-asserts", "::mlir::ModuleOp"> {
  let summary = "A failed cf.assert reports through piper_kernel_fail";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

def ExpandConversions : Pass<"piper-expand-conversions", "::mlir::ModuleOp"> {
  let summary = "Conversions from and to bf16 become integer arithmetic";
  let description = [{
    LLVM would call a routine that nobody provides. Rounds to nearest, ties to
    even; NaN stays NaN.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def HoldBitsOfBFloat16 : Pass<"piper-hold-bits-of-bfloat16", "::mlir::ModuleOp"> {
  let summary = "In the LLVM dialect values of bf16 become values of i16";
  let description = [{
    Nothing computes with them any more. Where LLVM takes a vector of bf16
    apart it would round its elements again, by a routine that nobody provides.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def WidenBooleans : Pass<"piper-widen-booleans", "::mlir::ModuleOp"> {
  let summary = "Memory of i1 becomes memory of i8, one byte per element";
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def PackedEntry : Pass<"piper-packed-entry", "::mlir::ModuleOp"> {
  let summary = "Gives the kernel the entry void name(void *const *args)";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // PIPER_LOWERING_PASSES_TD
