// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | FileCheck %s
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | grep "on \[0\] stream @compute : (" | FileCheck %s --check-prefix=ZERO
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | grep "on \[1\] stream @compute : (" | FileCheck %s --check-prefix=ONE
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule > %t.first
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | diff - %t.first

// Without `order`, the first of two stages keeps two microbatches alive and the last one one: what 1F1B does.
// ZERO: {{.*}}@c0_F({{.*}} {MB = 0 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_F({{.*}} {MB = 1 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 0 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_F({{.*}} {MB = 2 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 1 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_F({{.*}} {MB = 3 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 2 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 3 : i64, stage = 0 : i64}

// ONE: {{.*}}@c1_F({{.*}} {MB = 0 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 0 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_F({{.*}} {MB = 1 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 1 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_F({{.*}} {MB = 2 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 2 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_F({{.*}} {MB = 3 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 3 : i64, stage = 1 : i64}

// A message is received right where it is sent, contributions are added as they are made, and the last stage is done with its gradient
// before the first.
// CHECK:      %[[M:.*]], %{{.*}} = piper.send
// CHECK-NEXT: piper.recv %[[M]]
// CHECK:      %[[G0:.*]]:2, %{{.*}} = piper.compute @c1_B({{.*}} {MB = 0 :
// CHECK:      %[[G1:.*]]:2, %{{.*}} = piper.compute @c1_B({{.*}} {MB = 1 :
// CHECK:      %[[G2:.*]]:2, %{{.*}} = piper.compute @c1_B({{.*}} {MB = 2 :
// CHECK:      %[[G3:.*]]:2, %{{.*}} = piper.compute @c1_B({{.*}} {MB = 3 :
// CHECK:      piper.accumulate @b(%[[G0]]#1, %[[G1]]#1, %[[G2]]#1, %[[G3]]#1) on [1]
// CHECK:      piper.update @bucket1
// CHECK:      piper.accumulate @a({{.*}}) on [0]
// CHECK:      piper.update @bucket0
module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["pp"] [2]
  piper.state @a : tensor<16xf32> parameter trainable ["a"]
  piper.state @b : tensor<16xf32> parameter trainable ["b"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.chunk @c0_F F operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @c0_B B operands [1, 1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  func.func private @c1_F_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  func.func private @c1_B_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<2x4xf32>, tensor<16xf32>)
  func.func private @c0_B_rows2(tensor<2x4xf32>, tensor<2x4xf32>, tensor<16xf32>) -> tensor<16xf32>
  piper.graph @step rows 8 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %a = piper.read @a : tensor<16xf32>
    %b = piper.read @b : tensor<16xf32>
    %y, %s0, %t0 = piper.compute @c0_F(%x, %a) F {stage = 0 : i64} : (tensor<?x4xf32>, tensor<16xf32>) -> (tensor<?x4xf32>, !piper.bundle)
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%y, %b) F {stage = 1 : i64} : (tensor<?x4xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dy, %gb, %t2 = piper.compute @c1_B(%s1, %b) B {stage = 1 : i64} : (!piper.bundle, tensor<16xf32>) -> (tensor<?x4xf32>, tensor<16xf32>)
    %ga, %t3 = piper.compute @c0_B(%s0, %dy, %a) B {stage = 0 : i64} : (!piper.bundle, tensor<?x4xf32>, tensor<16xf32>) -> tensor<16xf32>
    %suma, %t4 = piper.accumulate @a (%ga) : tensor<16xf32> -> tensor<16xf32>
    %sumb, %t5 = piper.accumulate @b (%gb) : tensor<16xf32> -> tensor<16xf32>
    %t6 = piper.update @a (%suma) optimizer @group0 : tensor<16xf32>
    %t7 = piper.update @b (%sumb) optimizer @group0 : tensor<16xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 4
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 1 : i64} on [1] stream "pp_stream"
  }
}
