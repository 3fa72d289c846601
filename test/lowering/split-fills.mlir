// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split-fills | FileCheck %s

// CHECK-COUNT-2: linalg.fill
func.func @two_sums(%x: tensor<3x4xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<3xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<3xf32>) -> tensor<3xf32>
  %2 = linalg.reduce ins(%x : tensor<3x4xf32>) outs(%1 : tensor<3xf32>) dimensions = [1]
    (%a: f32, %b: f32) { %s = arith.addf %a, %b : f32 linalg.yield %s : f32 }
  %3 = linalg.reduce ins(%x : tensor<3x4xf32>) outs(%1 : tensor<3xf32>) dimensions = [1]
    (%a: f32, %b: f32) { %s = arith.subf %b, %a : f32 linalg.yield %s : f32 }
  return %2, %3 : tensor<3xf32>, tensor<3xf32>
}
