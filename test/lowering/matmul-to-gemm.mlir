// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-matmul-to-gemm --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @transposed
// CHECK-NOT: linalg.transpose
// CHECK: piper.gemm ins(%arg0, %arg1 : tensor<2x3xf32>, tensor<5x3xf32>) outs(%{{.*}} : tensor<2x5xf32>) {transpose_rhs} -> tensor<2x5xf32>
func.func @transposed(%a: tensor<2x3xf32>, %b: tensor<5x3xf32>) -> tensor<2x5xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<3x5xf32>
  %t = linalg.transpose ins(%b : tensor<5x3xf32>) outs(%0 : tensor<3x5xf32>) permutation = [1, 0]
  %1 = tensor.empty() : tensor<2x5xf32>
  %2 = linalg.fill ins(%zero : f32) outs(%1 : tensor<2x5xf32>) -> tensor<2x5xf32>
  %3 = linalg.matmul ins(%a, %t : tensor<2x3xf32>, tensor<3x5xf32>) outs(%2 : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %3 : tensor<2x5xf32>
}

// A transpose of the last two dims is seen through a collapse of the leading ones.
// CHECK-LABEL: func.func @batched
// CHECK: %[[K:.*]] = tensor.collapse_shape %arg1 {{.*}} : tensor<2x3x5x4xf32> into tensor<6x5x4xf32>
// CHECK: piper.gemm ins(%arg0, %[[K]] : {{.*}}) outs(%{{.*}}) {transpose_rhs} -> tensor<6x7x5xf32>
func.func @batched(%q: tensor<6x7x4xf32>, %k: tensor<2x3x5x4xf32>) -> tensor<6x7x5xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<2x3x4x5xf32>
  %t = linalg.transpose ins(%k : tensor<2x3x5x4xf32>) outs(%0 : tensor<2x3x4x5xf32>) permutation = [0, 1, 3, 2]
  %c = tensor.collapse_shape %t [[0, 1], [2], [3]] : tensor<2x3x4x5xf32> into tensor<6x4x5xf32>
  %1 = tensor.empty() : tensor<6x7x5xf32>
  %2 = linalg.fill ins(%zero : f32) outs(%1 : tensor<6x7x5xf32>) -> tensor<6x7x5xf32>
  %3 = linalg.batch_matmul ins(%q, %c : tensor<6x7x4xf32>, tensor<6x4x5xf32>) outs(%2 : tensor<6x7x5xf32>) -> tensor<6x7x5xf32>
  return %3 : tensor<6x7x5xf32>
}

// CHECK-LABEL: func.func @accumulated
// CHECK: piper.gemm {{.*}} outs(%arg2 : tensor<2x5xf32>) {accumulate}
func.func @accumulated(%a: tensor<2x3xf32>, %b: tensor<3x5xf32>, %c: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<2x3xf32>, tensor<3x5xf32>) outs(%c : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// CHECK-LABEL: func.func @double
// CHECK: linalg.matmul
func.func @double(%a: tensor<2x3xf64>, %b: tensor<3x5xf64>, %c: tensor<2x5xf64>) -> tensor<2x5xf64> {
  %0 = linalg.matmul ins(%a, %b : tensor<2x3xf64>, tensor<3x5xf64>) outs(%c : tensor<2x5xf64>) -> tensor<2x5xf64>
  return %0 : tensor<2x5xf64>
}
