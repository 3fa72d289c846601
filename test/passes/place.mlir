// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-place | FileCheck %s
// RUN: piper-opt %s --piper-place --verify-roundtrip

// A value goes once to each other group, also past the group in between (%a from stage 0 to stage 2, which uses it twice). The sum of
// gradients has no annotation and goes where it is used. Inputs are everywhere.

// CHECK:       piper.mesh @mesh ["pp", "dp"] [3, 2]
// CHECK-NEXT:  piper.stream @compute
// CHECK-NEXT:  piper.stream @p2p
// CHECK-NEXT:  piper.stream @pp_stream
// CHECK-LABEL: piper.graph @step
// CHECK:       %[[X:.*]] = piper.input
// CHECK:       %[[F0:.*]]:2, %{{.*}} = piper.compute @first_F(%[[X]]) F {stage = 0 : i64} on [0, 1] stream @compute
// CHECK-DAG:   %[[M1:.*]], %{{.*}} = piper.send %[[F0]]#0 on [0, 1] to [2, 3] stream @p2p tags {stage = 0 : i64} : tensor<?x4xf32>
// CHECK-DAG:   %[[R1:.*]], %{{.*}} = piper.recv %[[M1]] on [2, 3] from [0, 1] stream @p2p tags {stage = 0 : i64} : tensor<?x4xf32>
// CHECK-DAG:   %[[M2:.*]], %{{.*}} = piper.send %[[F0]]#0 on [0, 1] to [5, 4] stream @p2p
// CHECK-DAG:   %[[R2:.*]], %{{.*}} = piper.recv %[[M2]] on [5, 4] from [0, 1] stream @p2p
// CHECK:       %[[F1:.*]]:2, %{{.*}} = piper.compute @mid_F(%[[R1]]) F {stage = 1 : i64} on [2, 3]
// CHECK-NEXT:  %[[M3:.*]], %{{.*}} = piper.send %[[F1]]#0 on [2, 3] to [5, 4] stream @pp_stream
// CHECK-NEXT:  %[[R3:.*]], %{{.*}} = piper.recv %[[M3]] on [5, 4] from [2, 3] stream @pp_stream
// CHECK-NEXT:  %[[F2:.*]]:3, %{{.*}} = piper.compute @last_F(%[[R3]], %[[R2]], %[[R2]]) F {stage = 2 : i64} on [5, 4]
// CHECK-NEXT:  %[[B2:.*]]:2, %{{.*}} = piper.compute @last_B(%[[F2]]#2) B {stage = 2 : i64} on [5, 4]
// CHECK-DAG:   piper.send %[[B2]]#0 on [5, 4] to [2, 3]
// CHECK-DAG:   piper.send %[[B2]]#1 on [5, 4] to [0, 1]
// CHECK:       piper.compute @mid_B({{.*}}) B {stage = 1 : i64} on [2, 3]
// CHECK:       piper.compute @sum_B({{.*}}) B {} on [0, 1] stream @compute
// CHECK-NOT:   piper.send
// CHECK:       piper.compute @first_B({{.*}}) B {stage = 0 : i64} on [0, 1]
module {
  piper.mesh @mesh ["pp", "dp"] [3, 2]
  piper.state @w : tensor<4x4xf32> parameter trainable ["w"]
  piper.chunk @first_F F operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @first_F_rows4}]
  piper.chunk @mid_F F operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @mid_F_rows4}]
  piper.chunk @last_F F operands [1, 1, 1] results [1, 1, 1] [{binding = {rows = 4 : i64}, function = @last_F_rows4}]
  piper.chunk @last_B B operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @last_B_rows4}]
  piper.chunk @mid_B B operands [1, 1] results [1] [{binding = {rows = 4 : i64}, function = @mid_B_rows4}]
  piper.chunk @sum_B B operands [1, 1] results [1] [{binding = {rows = 4 : i64}, function = @sum_B_rows4}]
  piper.chunk @first_B B operands [1, 1] results [1] [{binding = {rows = 4 : i64}, function = @first_B_rows4}]
  func.func private @first_F_rows4(tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
  func.func private @mid_F_rows4(tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
  func.func private @last_F_rows4(tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>)
  func.func private @last_B_rows4(tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)
  func.func private @mid_B_rows4(tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.func private @sum_B_rows4(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.func private @first_B_rows4(tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  piper.graph @step rows 8 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %a, %s0, %t0 = piper.compute @first_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<?x4xf32>, !piper.bundle)
    %b, %s1, %t1 = piper.compute @mid_F(%a) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<?x4xf32>, !piper.bundle)
    %loss, %weight, %s2, %t2 = piper.compute @last_F(%b, %a, %a) F {stage = 2 : i64}
        : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %db, %da2, %t3 = piper.compute @last_B(%s2) B {stage = 2 : i64} : (!piper.bundle) -> (tensor<?x4xf32>, tensor<?x4xf32>)
    %da1, %t4 = piper.compute @mid_B(%s1, %db) B {stage = 1 : i64} : (!piper.bundle, tensor<?x4xf32>) -> tensor<?x4xf32>
    %da, %t5 = piper.compute @sum_B(%da1, %da2) B {} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    %g, %t6 = piper.compute @first_B(%s0, %da) B {stage = 0 : i64} : (!piper.bundle, tensor<?x4xf32>) -> tensor<4x4xf32>
    %sum, %t7 = piper.accumulate @w (%g) : tensor<4x4xf32> -> tensor<4x4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.place {stage = 0 : i64} on [0, 1] stream "p2p"
    piper.place {stage = 1 : i64} on [2, 3] stream "pp_stream"
    piper.place {stage = 2 : i64} on [5, 4] stream "pp_stream"
  }
}
