// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-generalize | FileCheck %s

// CHECK-LABEL: func.func @named
// CHECK-NOT: linalg.transpose
// CHECK: linalg.generic
// CHECK: linalg.fill
func.func @named(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<2xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<3x2xf32>
  %1 = linalg.transpose ins(%x : tensor<2x3xf32>) outs(%0 : tensor<3x2xf32>) permutation = [1, 0]
  %2 = tensor.empty() : tensor<2xf32>
  %3 = linalg.fill ins(%zero : f32) outs(%2 : tensor<2xf32>) -> tensor<2xf32>
  return %1, %3 : tensor<3x2xf32>, tensor<2xf32>
}
