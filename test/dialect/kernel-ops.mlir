// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: func.func @tensors
// CHECK: piper.gemm ins(%{{.*}}, %{{.*}} : tensor<8x4xf32>, tensor<16x4xf32>) outs(%{{.*}} : tensor<8x16xf32>) {transpose_rhs} -> tensor<8x16xf32>
// CHECK: piper.library_call "topk"(%{{.*}}) {params = array<i64: 8, 16, 2, 1, 1>}
func.func @tensors(%x: tensor<8x4xf32>, %w: tensor<16x4xf32>, %init: tensor<8x16xf32>) -> (tensor<8x2xf32>, tensor<8x2xi64>) {
  %0 = piper.gemm ins(%x, %w : tensor<8x4xf32>, tensor<16x4xf32>) outs(%init : tensor<8x16xf32>) {transpose_rhs} -> tensor<8x16xf32>
  %1:2 = piper.library_call "topk"(%0) {params = array<i64: 8, 16, 2, 1, 1>} : (tensor<8x16xf32>) -> (tensor<8x2xf32>, tensor<8x2xi64>)
  return %1#0, %1#1 : tensor<8x2xf32>, tensor<8x2xi64>
}

// CHECK-LABEL: func.func @memrefs
// CHECK: piper.gemm {{.*}} {accumulate, transpose_lhs}
// CHECK: piper.library_call "cumsum"(%{{.*}}) outs(%{{.*}} : memref<8x16xf32>)
func.func @memrefs(%x: memref<4x8xf32, strided<[9, 1]>>, %w: memref<4x16xf32>, %y: memref<8x16xf32>, %z: memref<8x16xf32>) {
  piper.gemm ins(%x, %w : memref<4x8xf32, strided<[9, 1]>>, memref<4x16xf32>) outs(%y : memref<8x16xf32>) {accumulate, transpose_lhs}
  piper.library_call "cumsum"(%y) outs(%z : memref<8x16xf32>) {params = array<i64: 8, 16, 1>} : (memref<8x16xf32>) -> ()
  return
}
