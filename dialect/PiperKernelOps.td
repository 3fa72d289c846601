//===- PiperKernelOps.td - Calls into the kernel library ----*- tablegen -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_KERNEL_OPS_TD
#define PIPER_KERNEL_OPS_TD

include "dialect/PiperDialect.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Piper_Matrix : AnyTypeOf<[TensorOf<[F32, BF16]>, StridedMemRefRankOf<[F32, BF16], [2, 3]>],
                             "tensor or strided memref of f32 or bf16">;

def Piper_GemmOp : Piper_Op<"gemm", [
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "matrix product by the kernel library";
  let description = [{
    Computes `output = op(lhs) * op(rhs)`, or `output += op(lhs) * op(rhs)` with
    `accumulate`, where `op` transposes the last two dimensions of an operand
    that carries its transpose flag. Rank 3 operands are batches of independent
    products. On tensors the op is destination-passing: the result takes the
    place of `output`, whose contents are read only with `accumulate`.

    Example:
    ```mlir
    %y = piper.gemm ins(%x, %w : tensor<8x4xf32>, tensor<16x4xf32>)
                    outs(%init : tensor<8x16xf32>) {transpose_rhs} -> tensor<8x16xf32>
    ```

    Constraints:
    - all three operands are tensors with one result of the type of `output`,
      or all are memrefs and there is no result
    - all have the same rank, 2 or 3, and static shapes
    - `lhs` and `rhs` are both of f32 or both of bf16; `output` is of f32, or of
      bf16 where they are and it does not accumulate. Sums are made in f32.
    - the batch dimensions are equal and the product's shape is that of `output`
  }];
  let arguments = (ins Piper_Matrix:$lhs, Piper_Matrix:$rhs,
                       Piper_Matrix:$output, UnitAttr:$transpose_lhs,
                       UnitAttr:$transpose_rhs, UnitAttr:$accumulate);
  let results = (outs Variadic<TensorOf<[F32, BF16]>>:$result);
  let assemblyFormat = [{
    `ins` `(` $lhs `,` $rhs `:` type($lhs) `,` type($rhs) `)`
    `outs` `(` $output `:` type($output) `)` attr-dict (`->` type($result)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getOutputMutable(); }
  }];
  let hasVerifier = 1;
}

def Piper_LibraryCallOp : Piper_Op<"library_call", [
    AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "call of a kernel library function";
  let description = [{
    Calls `void piper_<symbol>(void *const *args, int64_t const *imm)`. `args`
    points to the inputs and then to the outputs, all dense and row-major;
    `imm` holds `params`, followed by the bit pattern of `scale` for kernels
    that take one. The callee writes every element of every output and reads
    none of them.

    On tensors the op returns fresh values; `outs` may name tensors whose
    storage the results take over. On memrefs it writes to `outs` and has no
    results. `dialect/LibraryKernels.cpp` lists the symbols.

    Example:
    ```mlir
    %o, %lse = piper.library_call "attention_forward"(%q, %k, %v)
        {params = array<i64: 2, 4, 4, 8, 8, 16, 1>, scale = 0.25 : f64}
        : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
        -> (tensor<2x4x8x16xf32>, tensor<2x4x8xf32>)
    ```

    Constraints:
    - `symbol` is one of the kernel library
    - the number of inputs, results and params and the presence of `scale` are
      those of the symbol
    - no param but `padding_idx` is negative; heads are a multiple of key heads;
      `k` is at most `N`
    - each operand and result has the element type and the number of elements
      that the params give
    - `outs`, where present on tensors, has the types of the results
  }];
  let arguments = (ins StrAttr:$symbol, Variadic<AnyType>:$inputs,
                       Variadic<AnyType>:$outputs,
                       DenseI64ArrayAttr:$params,
                       OptionalAttr<F64Attr>:$scale);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $symbol `(` $inputs `)` (`outs` `(` $outputs^ `:` type($outputs) `)`)?
    attr-dict `:` functional-type($inputs, $results)
  }];
  let extraClassDeclaration = [{
    /// The `imm` array of the call: the params, then the bits of `scale`.
    ::llvm::SmallVector<int64_t> getImmediates();
  }];
  let hasVerifier = 1;
}

#endif // PIPER_KERNEL_OPS_TD
