// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | FileCheck %s

// Rank 2 needs a message of rank 0, which multiplies matrices for long, and one of rank 1, which is done soon: it asks for the second one first, although both are forwards.
// CHECK-DAG:  %[[SLOW:.*]], %{{.*}} = piper.compute @slow_F
// CHECK-DAG:  %[[QUICK:.*]], %{{.*}} = piper.compute @quick_F
// CHECK:      piper.send %[[QUICK]]
// CHECK-NEXT: piper.recv
// CHECK:      piper.send %[[SLOW]]
// CHECK-NEXT: piper.recv
// CHECK:      piper.compute @sum_F
module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["pp"] [3]
  piper.chunk @slow_F F operands [1] results [1] [{binding = {rows = 64 : i64}, function = @slow}]
  piper.chunk @quick_F F operands [1] results [1] [{binding = {rows = 64 : i64}, function = @quick}]
  piper.chunk @sum_F F operands [1, 1] results [1, 1] [{binding = {rows = 64 : i64}, function = @sum}]
  func.func private @slow(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = linalg.matmul ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%x : tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = linalg.matmul ins(%0, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%x : tensor<64x64xf32>) -> tensor<64x64xf32>
    return %1 : tensor<64x64xf32>
  }
  func.func private @quick(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = linalg.add ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%x : tensor<64x64xf32>) -> tensor<64x64xf32>
    return %0 : tensor<64x64xf32>
  }
  func.func private @sum(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>) -> (tensor<f32>, tensor<f32>) {
    %0 = arith.constant dense<1.0> : tensor<f32>
    return %0, %0 : tensor<f32>, tensor<f32>
  }
  piper.graph @evaluate rows 64 {
    %x = piper.input "args.0" 0 split : tensor<?x64xf32>
    %a, %t0 = piper.compute @slow_F(%x) F {stage = 0 : i64} : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %b, %t1 = piper.compute @quick_F(%x) F {stage = 1 : i64} : (tensor<?x64xf32>) -> tensor<?x64xf32>
    %loss, %weight, %t2 = piper.compute @sum_F(%a, %b) F {stage = 2 : i64} : (tensor<?x64xf32>, tensor<?x64xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 1 : i64} on [1] stream "pp_stream"
    piper.place {stage = 2 : i64} on [2] stream "pp_stream"
  }
}
