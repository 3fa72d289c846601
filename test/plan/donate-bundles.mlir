// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-donate-bundles | FileCheck %s
// RUN: piper-opt %s --piper-plan-pipeline | FileCheck %s --check-prefix=PLANNED

// Saved values that one call reads may be overwritten there. Other operands may not, nor a bundle with a second reader: neither by the function that both
// call, nor by one that elsewhere has a bundle to itself.

// CHECK: func.func private @once(tensor<2x3xf32>, tensor<4xf32> {piper.donated}, tensor<2xi64> {piper.donated}) -> tensor<2x3xf32>
// CHECK: func.func private @twice(tensor<2x3xf32>, tensor<4xf32>, tensor<2xi64>) -> tensor<2x3xf32>
// PLANNED-DAG: piper.plan.kernel "once" [24, 16, 16, 24] "rxxw"
// PLANNED-DAG: piper.plan.kernel "twice" [24, 16, 16, 24] "rrrw"
// PLANNED-DAG: piper.plan.kernel "f" [16, 24, 16, 16] "rwww"
module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["pp"] [1]
  piper.stream @compute
  piper.chunk @chunk_f F operands [1] results [1, 2] [{binding = {rows = 2 : i64}, function = @f}]
  piper.chunk @chunk_once B operands [1, 2] results [1] [{binding = {rows = 2 : i64}, function = @once}]
  piper.chunk @chunk_twice B operands [1, 2] results [1] [{binding = {rows = 2 : i64}, function = @twice}]
  piper.chunk @chunk_loss F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @loss}]
  func.func private @f(tensor<2x2xf32>) -> (tensor<2x3xf32>, tensor<4xf32>, tensor<2xi64>)
  func.func private @once(tensor<2x3xf32>, tensor<4xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  func.func private @twice(tensor<2x3xf32>, tensor<4xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  func.func private @loss(tensor<2x3xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x2xf32>
    %y0, %s0, %t0 = piper.compute @chunk_f(%x) F {stage = 0 : i64} on [0] stream @compute functions [@f] [0] : (tensor<?x2xf32>) -> (tensor<?x3xf32>, !piper.bundle)
    %y1, %s1, %t1 = piper.compute @chunk_f(%x) F {stage = 1 : i64} on [0] stream @compute functions [@f] [0] : (tensor<?x2xf32>) -> (tensor<?x3xf32>, !piper.bundle)
    %y2, %s2, %t2 = piper.compute @chunk_f(%x) F {stage = 2 : i64} on [0] stream @compute functions [@f] [0] : (tensor<?x2xf32>) -> (tensor<?x3xf32>, !piper.bundle)
    %z0, %t3 = piper.compute @chunk_once(%y0, %s0) B {stage = 0 : i64} on [0] stream @compute functions [@once] [0] : (tensor<?x3xf32>, !piper.bundle) -> tensor<?x3xf32>
    %z1, %t4 = piper.compute @chunk_twice(%z0, %s1) B {stage = 1 : i64} on [0] stream @compute functions [@twice] [0] : (tensor<?x3xf32>, !piper.bundle) -> tensor<?x3xf32>
    %z2, %t5 = piper.compute @chunk_twice(%z1, %s1) B {stage = 1 : i64} on [0] stream @compute functions [@twice] [0] : (tensor<?x3xf32>, !piper.bundle) -> tensor<?x3xf32>
    %z3, %t6 = piper.compute @chunk_twice(%z2, %s2) B {stage = 2 : i64} on [0] stream @compute functions [@twice] [0] : (tensor<?x3xf32>, !piper.bundle) -> tensor<?x3xf32>
    %l, %n, %t7 = piper.compute @chunk_loss(%z3) F {stage = 3 : i64} on [0] stream @compute functions [@loss] [0] : (tensor<?x3xf32>) -> (tensor<f32>, tensor<f32>)
    %p = piper.pack (%l, %n) on [0] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %p : tensor<2xf32>
  }
}
