// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-lower-kernel-calls | FileCheck %s

// Of bf16 the same, then whether the result is of bf16.
// CHECK: llvm.mlir.global internal constant @piper.imm1(dense<[1, 2, 5, 3, 0, 0, 0, 3, 5, 5, 0, 0, 0, 1]>
// CHECK: llvm.func @piper_sgemm(!llvm.ptr, !llvm.ptr)
// imm: batch, M, N, K, transposes, accumulate, row strides, batch strides.
// CHECK: llvm.mlir.global internal constant @piper.imm0(dense<[1, 2, 5, 3, 0, 1, 1, 8, 3, 5, 0, 0, 0]>
// CHECK-LABEL: func.func @gemm
// CHECK: %[[ARGS:.*]] = llvm.alloca
// CHECK-COUNT-3: llvm.store
// CHECK: %[[IMM:.*]] = llvm.mlir.addressof @piper.imm0
// CHECK: llvm.call @piper_sgemm(%[[ARGS]], %[[IMM]])
func.func @gemm(%a: memref<2x3xf32, strided<[8, 1], offset: ?>>, %b: memref<5x3xf32>, %c: memref<2x5xf32>) {
  piper.gemm ins(%a, %b : memref<2x3xf32, strided<[8, 1], offset: ?>>, memref<5x3xf32>)
             outs(%c : memref<2x5xf32>) {accumulate, transpose_rhs}
  return
}

// CHECK-LABEL: func.func @bf16
// CHECK: llvm.call @piper_gemm_bf16(
func.func @bf16(%a: memref<2x3xbf16>, %b: memref<3x5xbf16>, %c: memref<2x5xbf16>) {
  piper.gemm ins(%a, %b : memref<2x3xbf16>, memref<3x5xbf16>) outs(%c : memref<2x5xbf16>)
  return
}
