// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-place --piper-replicate | FileCheck %s

// States that two stages use. @w is trained: one bucket for the union of the groups, each group sums what it contributes, and under
// shard_params its parameters stay whole. @fixed is frozen: an instance per group. The buffer @mean, written by the first stage, is written on
// both.

// CHECK:       piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 64 ranks [0, 1, 2, 3] optimizer @group0 {gather_stream = @gather_stream, reduce_stream = @reduce_stream, shard_grads, shard_optimizer}
// CHECK-NEXT:  piper.bucket @bucket1 [@fixed] offsets [0] elements 4 padded 32 ranks [0, 1] {gather_stream = @gather_stream, shard_grads, shard_optimizer, shard_params}
// CHECK-NEXT:  piper.bucket @bucket2 [@fixed] offsets [0] elements 4 padded 32 ranks [2, 3] {gather_stream = @gather_stream, shard_grads, shard_optimizer, shard_params}
// CHECK-NEXT:  piper.bucket @bucket3 [@mean] offsets [0] elements 4 padded 32 ranks [0, 1]{{$}}
// CHECK-NEXT:  piper.bucket @bucket4 [@mean] offsets [0] elements 4 padded 32 ranks [2, 3]{{$}}
// CHECK-LABEL: piper.graph @step
// CHECK:       %[[F0:.*]]:3, %{{.*}} = piper.compute @c0_F
// CHECK:       %[[M:.*]], %{{.*}} = piper.send %[[F0]]#1 on [0, 1] to [2, 3]
// CHECK:       %[[R:.*]], %{{.*}} = piper.recv %[[M]]
// CHECK:       %[[F1:.*]]:3, %{{.*}} = piper.compute @c1_F(%{{.*}}, %{{.*}}, %{{.*}}, %[[R]])
// CHECK:       %[[G0:.*]], %{{.*}} = piper.accumulate @w(%{{.*}}) on [0, 1]
// CHECK:       %[[G1:.*]], %{{.*}} = piper.accumulate @w(%{{.*}}) on [2, 3]
// CHECK:       piper.write @bucket3, %[[F0]]#1
// CHECK:       piper.write @bucket4, %[[R]]
// CHECK:       %[[P:.*]] = piper.pack @bucket0 [@w, @w](%[[G0]], %[[G1]]) on [0, 1, 2, 3]
// CHECK:       piper.reduce_scatter sum %[[P]] on [0, 1, 2, 3] stream @reduce_stream : tensor<64xf32> -> tensor<16xf32>
module {
  piper.mesh @mesh ["pp", "dp"] [2, 2]
  piper.state @w : tensor<4xf32> parameter trainable ["w"]
  piper.state @fixed : tensor<4xf32> parameter ["fixed"]
  piper.state @mean : tensor<4xf32> buffer ["mean"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.chunk @c0_F F operands [1, 1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @c0_B B operands [1, 1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>, tensor<2x4xf32>)
  func.func private @c1_F_rows2(tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  func.func private @c1_B_rows2(tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>)
  func.func private @c0_B_rows2(tensor<2x4xf32>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<4xf32>
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %w = piper.read @w : tensor<4xf32>
    %fixed = piper.read @fixed : tensor<4xf32>
    %mean = piper.read @mean : tensor<4xf32>
    %y, %new, %s0, %t0 = piper.compute @c0_F(%x, %w, %fixed, %mean) F {stage = 0 : i64}
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>, !piper.bundle)
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%y, %w, %fixed, %new) F {stage = 1 : i64}
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dy, %g1, %t2 = piper.compute @c1_B(%s1, %w) B {stage = 1 : i64} : (!piper.bundle, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>)
    %g0, %t3 = piper.compute @c0_B(%s0, %dy, %w) B {stage = 0 : i64} : (!piper.bundle, tensor<?x4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %sum, %t4 = piper.accumulate @w (%g0, %g1) : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
    %t5 = piper.update @w (%sum) optimizer @group0 : tensor<4xf32>
    piper.write @mean, %new : tensor<4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.graph @evaluate rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %w = piper.read @w : tensor<4xf32>
    %fixed = piper.read @fixed : tensor<4xf32>
    %mean = piper.read @mean : tensor<4xf32>
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%x, %w, %fixed, %mean) F {stage = 1 : i64}
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.place {stage = 0 : i64} on [0, 1] stream "pp_stream"
    piper.place {stage = 1 : i64} on [2, 3] stream "pp_stream"
    piper.replicate {} on [0, 1] {shard_optimizer, shard_grads, shard_params}
    piper.replicate {} on [2, 3] {shard_optimizer, shard_grads, shard_params}
  }
}
