// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | FileCheck %s

// Sharded parameters are gathered before the node ahead of their use, and after the one before that has ended: two buckets are whole at a
// time. Nodes that follow each other on one bucket share a gather.

// CHECK:      %[[A:.*]] = piper.read @bucket0 : tensor<16xf32>
// CHECK:      %[[B:.*]] = piper.read @bucket1 : tensor<16xf32>
// CHECK:      %[[A0:.*]], %{{.*}} = piper.all_gather %[[A]] on [0, 1] stream @gather_stream
// CHECK:      %[[B0:.*]], %{{.*}} = piper.all_gather %[[B]] on [0, 1] stream @gather_stream
// CHECK:      %[[VA0:.*]] = piper.unpack @bucket0 @a %[[A0]]
// CHECK-NEXT: %{{.*}}:2, %[[F0:.*]] = piper.compute @c0_F(%{{.*}}, %[[VA0]]) F {MB = 0 :
// CHECK:      %[[VB0:.*]] = piper.unpack @bucket1 @b %[[B0]]
// CHECK-NEXT: %{{.*}}:3, %[[L0:.*]] = piper.compute @c1_F(%{{.*}}, %[[VB0]]) F {MB = 0 :
// CHECK:      %[[A1:.*]], %{{.*}} = piper.all_gather %[[A]] after(%[[L0]]) on [0, 1] stream @gather_stream
// CHECK:      %[[VB1:.*]] = piper.unpack @bucket1 @b %[[B0]]
// CHECK-NEXT: %{{.*}}:2, %[[LB0:.*]] = piper.compute @c1_B(%{{.*}}, %[[VB1]]) B {MB = 0 :
// CHECK:      %[[VA1:.*]] = piper.unpack @bucket0 @a %[[A1]]
// CHECK-NEXT: %{{.*}}, %[[B0T:.*]] = piper.compute @c0_B(%{{.*}}, %[[VA1]]) B {MB = 0 :
// CHECK:      %[[B1:.*]], %{{.*}} = piper.all_gather %[[B]] after(%[[B0T]]) on [0, 1]
// CHECK:      %[[VA2:.*]] = piper.unpack @bucket0 @a %[[A1]]
// CHECK-NEXT: piper.compute @c0_F(%{{.*}}, %[[VA2]]) F {MB = 1 :
module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["dp"] [2]
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
  piper.graph @step rows 16 {
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
    piper.split {} "MB" into 2
    piper.replicate {} on [0, 1] {shard_optimizer, shard_grads, shard_params}
  }
}
