// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: sed 's/FLAGS/bucket_size = 25.0 : f64/' %s | piper-opt --piper-split --piper-place --piper-replicate | FileCheck %s --check-prefixes=CHECK,PLAIN
// RUN: sed 's/FLAGS/shard_optimizer/' %s | piper-opt --piper-split --piper-place --piper-replicate | FileCheck %s --check-prefixes=CHECK,ZERO1
// RUN: sed 's/FLAGS/shard_optimizer, shard_grads/' %s | piper-opt --piper-split --piper-place --piper-replicate | FileCheck %s --check-prefixes=CHECK,ZERO2
// RUN: sed 's/FLAGS/shard_optimizer, shard_grads, shard_params/' %s | piper-opt --piper-split --piper-place --piper-replicate | FileCheck %s --check-prefixes=CHECK,ZERO3
// RUN: sed 's/FLAGS/bucket_size = 1.0e-4 : f64/' %s | piper-opt --piper-split --piper-place --piper-replicate | FileCheck %s --check-prefix=SMALL
// RUN: sed 's/FLAGS/shard_optimizer, shard_grads, shard_params/' %s | piper-opt --piper-split --piper-place --piper-replicate --verify-roundtrip

// Two ranks, one stage of two blocks, two microbatches. @c is frozen, @mean a buffer that is written, @b the second block's own.

// Offsets and padding are multiples of 16 elements per rank.
// PLAIN:       piper.bucket @bucket0 [@a, @b] offsets [0, 32] elements 36 padded 64 ranks [0, 1] optimizer @group0 {reduce_stream = @dp_stream}
// PLAIN-NEXT:  piper.bucket @bucket1 [@mean] offsets [0] elements 4 padded 32 ranks [0, 1]{{$}}
// PLAIN-NEXT:  piper.bucket @bucket2 [@c] offsets [0] elements 4 padded 32 ranks [0, 1]{{$}}
// ZERO1:       piper.bucket @bucket0 [@a, @b] {{.*}} {gather_stream = @gather_stream, reduce_stream = @dp_stream, shard_optimizer}
// ZERO2:       piper.bucket @bucket0 [@a, @b] {{.*}} {gather_stream = @gather_stream, reduce_stream = @dp_stream, shard_grads, shard_optimizer}
// A gather serves one chunk, and what is frozen is sharded too; the buffer is not.
// ZERO3:       piper.bucket @bucket0 [@a] {{.*}} {gather_stream = @gather_stream, reduce_stream = @dp_stream, shard_grads, shard_optimizer, shard_params}
// ZERO3-NEXT:  piper.bucket @bucket1 [@mean] {{.*}} ranks [0, 1]{{$}}
// ZERO3-NEXT:  piper.bucket @bucket2 [@b] {{.*}} shard_params}
// ZERO3-NEXT:  piper.bucket @bucket3 [@c] offsets [0] elements 4 padded 32 ranks [0, 1] {gather_stream = @gather_stream, shard_grads, shard_optimizer, shard_params}
// Less than both fit into 104 bytes; a state that alone is larger has a bucket of its own.
// SMALL:       piper.bucket @bucket0 [@a] offsets [0] elements 32
// SMALL-NEXT:  piper.bucket @bucket1 [@mean]
// SMALL-NEXT:  piper.bucket @bucket2 [@b] offsets [0] elements 4

// CHECK-LABEL: piper.graph @step
// One read of a bucket that is whole on each rank.
// PLAIN:       %[[A:.*]] = piper.read @bucket0 : tensor<64xf32>
// PLAIN:       piper.unpack @bucket0 @a %[[A]] : tensor<64xf32> -> tensor<32xf32>
// PLAIN-NOT:   piper.all_gather
// ZERO1:       piper.read @bucket0 : tensor<64xf32>
// A gather for each node, before it.
// ZERO3:       %[[SHARD:.*]] = piper.read @bucket0 : tensor<16xf32>
// ZERO3:       %[[FULL:.*]], %{{.*}} = piper.all_gather %[[SHARD]] on [0, 1] stream @gather_stream : tensor<16xf32> -> tensor<32xf32>
// ZERO3-NEXT:  %[[VIEW:.*]] = piper.unpack @bucket0 @a %[[FULL]] : tensor<32xf32> -> tensor<32xf32>
// ZERO3-NEXT:  piper.compute @c0_F(%{{.*}}, %[[VIEW]], %{{.*}}) F {MB = 0 : i64,
// ZERO3:       piper.all_gather %{{.*}} on [0, 1] stream @gather_stream
// ZERO3:       piper.compute @c1_F({{.*}}) F {MB = 0 : i64,
// ZERO3:       piper.all_gather
// ZERO3:       piper.compute @c1_B({{.*}}) B {MB = 0 : i64,
// ZERO3:       piper.all_gather
// ZERO3:       piper.compute @c0_B({{.*}}) B {MB = 0 : i64,
// ZERO3:       piper.all_gather
// ZERO3:       piper.compute @c0_F({{.*}}) F {MB = 1 : i64,

// CHECK:       piper.accumulate @a(%{{.*}}, %{{.*}}) on [0, 1] stream @compute
// CHECK:       piper.accumulate @b(%{{.*}}, %{{.*}}) on [0, 1] stream @compute
// The buffer is handed on by values, and its last one written.
// CHECK:       piper.write @bucket1, %{{.*}} : tensor<4xf32>
// CHECK:       %[[LOSS:.*]] = piper.pack(%{{.*}}, %{{.*}}) on [0, 1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
// CHECK-NEXT:  %[[BOTH:.*]], %{{.*}} = piper.all_reduce sum %[[LOSS]] on [0, 1] stream @dp_stream : tensor<2xf32> -> tensor<2xf32>

// PLAIN-NEXT:  %[[P:.*]] = piper.pack @bucket0 [@a, @b](%{{.*}}, %{{.*}}) on [0, 1] : (tensor<32xf32>, tensor<4xf32>) -> tensor<64xf32>
// PLAIN-NEXT:  %[[R:.*]], %{{.*}} = piper.all_reduce sum %[[P]] on [0, 1] stream @dp_stream : tensor<64xf32> -> tensor<64xf32>
// PLAIN-NEXT:  piper.update @bucket0(%[[R]]) scale %[[BOTH]] optimizer @group0 on [0, 1] stream @compute : tensor<64xf32>, tensor<2xf32> -> tensor<64xf32>
// PLAIN-NEXT:  piper.return %[[BOTH]]

// ZERO1-NEXT:  %[[P:.*]] = piper.pack @bucket0
// ZERO1-NEXT:  %[[R:.*]], %{{.*}} = piper.reduce_scatter sum %[[P]] on [0, 1] stream @dp_stream : tensor<64xf32> -> tensor<32xf32>
// ZERO1-NEXT:  %[[U:.*]], %{{.*}} = piper.update @bucket0(%[[R]]) scale %[[BOTH]] optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
// ZERO1-NEXT:  %[[G:.*]], %{{.*}} = piper.all_gather %[[U]] on [0, 1] stream @gather_stream : tensor<32xf32> -> tensor<64xf32>
// ZERO1-NEXT:  piper.write @bucket0, %[[G]] : tensor<64xf32>
// ZERO1-NEXT:  piper.return %[[BOTH]]

// ZERO2:       piper.reduce_scatter sum
// ZERO2-NEXT:  piper.update
// ZERO2-NEXT:  piper.all_gather
// ZERO2-NEXT:  piper.write @bucket0

// ZERO3-NEXT:  piper.pack @bucket0 [@a]
// ZERO3-NEXT:  piper.reduce_scatter sum
// ZERO3-NEXT:  piper.update @bucket0
// ZERO3-NEXT:  piper.pack @bucket2 [@b]
// ZERO3-NEXT:  piper.reduce_scatter sum
// ZERO3-NEXT:  piper.update @bucket2
// ZERO3-NEXT:  piper.return %[[BOTH]]
module {
  piper.mesh @mesh ["dp"] [2]
  piper.state @a : tensor<32xf32> parameter trainable ["a"]
  piper.state @b : tensor<4xf32> parameter trainable ["b"]
  piper.state @c : tensor<4xf32> parameter ["c"]
  piper.state @mean : tensor<4xf32> buffer ["mean"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.chunk @c0_F F operands [1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @c0_B B operands [1, 1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>, tensor<32xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>, tensor<2x4xf32>)
  func.func private @c1_F_rows2(tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  func.func private @c1_B_rows2(tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>)
  func.func private @c0_B_rows2(tensor<2x4xf32>, tensor<2x4xf32>, tensor<32xf32>) -> tensor<32xf32>
  piper.graph @step rows 8 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %a = piper.read @a : tensor<32xf32>
    %b = piper.read @b : tensor<4xf32>
    %c = piper.read @c : tensor<4xf32>
    %mean = piper.read @mean : tensor<4xf32>
    %y, %new, %s0, %t0 = piper.compute @c0_F(%x, %a, %mean) F {stage = 0 : i64, _block = 0 : i64}
        : (tensor<?x4xf32>, tensor<32xf32>, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>, !piper.bundle)
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%y, %b, %c) F {stage = 0 : i64, _block = 1 : i64}
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dy, %gb, %t2 = piper.compute @c1_B(%s1, %b) B {stage = 0 : i64, _block = 1 : i64} : (!piper.bundle, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>)
    %ga, %t3 = piper.compute @c0_B(%s0, %dy, %a) B {stage = 0 : i64, _block = 0 : i64} : (!piper.bundle, tensor<?x4xf32>, tensor<32xf32>) -> tensor<32xf32>
    %suma, %t4 = piper.accumulate @a (%ga) : tensor<32xf32> -> tensor<32xf32>
    %sumb, %t5 = piper.accumulate @b (%gb) : tensor<4xf32> -> tensor<4xf32>
    %t6 = piper.update @a (%suma) optimizer @group0 : tensor<32xf32>
    %t7 = piper.update @b (%sumb) optimizer @group0 : tensor<4xf32>
    piper.write @mean, %new : tensor<4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 2
    piper.replicate {} on [0, 1] reduce_stream "dp_stream" {FLAGS}
  }
}
