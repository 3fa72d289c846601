// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split-fills | FileCheck %s

// CHECK-LABEL: func.func @constants
// CHECK: %[[ONE:.*]] = arith.constant 1.0{{.*}} : f32
// CHECK: %[[FILLED:.*]] = linalg.fill ins(%[[ONE]] : f32) outs(%{{.*}} : tensor<1000xf32>)
// CHECK: %[[LISTED:.*]] = arith.constant dense<[1, 2]>
// CHECK: return %[[FILLED]], %[[LISTED]]
func.func @constants() -> (tensor<1000xf32>, tensor<2xi64>) {
  %0 = arith.constant dense<1.0> : tensor<1000xf32>
  %1 = arith.constant dense<[1, 2]> : tensor<2xi64>
  return %0, %1 : tensor<1000xf32>, tensor<2xi64>
}
