// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -piper-partition | FileCheck %s

// Two stages on two replicas each, two microbatches, ZeRO-1.

module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["pp", "dp"] [2, 2]
  piper.stream @compute
  piper.stream @pp_stream {sms = 2 : i64}
  piper.stream @dp_stream
  piper.state @w0 : tensor<8x8xf32> parameter trainable ["w0"]
  piper.state @w1 : tensor<8x8xf32> parameter trainable ["w1"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr", "first_step"] config {momentum = 9.0e-1 : f64}
  piper.bucket @bucket0 [@w0] offsets [0] elements 64 padded 64 ranks [0, 1] optimizer @group0 {shard_optimizer}
  piper.bucket @bucket1 [@w1] offsets [0] elements 64 padded 64 ranks [2, 3] optimizer @group0 {shard_optimizer}
  piper.chunk @c0_F F operands [1, 1] results [1, 2] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @c0_B B operands [2, 1] results [1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_F_rows2(tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<3xi1>)
  func.func private @c1_F_rows2(tensor<2x8xf32>, tensor<2xi64>, tensor<8x8xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x8xf32>)
  func.func private @c1_B_rows2(tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
  func.func private @c0_B_rows2(tensor<2x8xf32>, tensor<3xi1>, tensor<2x8xf32>) -> tensor<8x8xf32>
  piper.graph @step rows 8 {
    %x0 = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x8xf32>
    %x1 = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x8xf32>
    %t0 = piper.input "target" 1 split microbatch 0 of 2 : tensor<?xi64>
    %t1 = piper.input "target" 1 split microbatch 1 of 2 : tensor<?xi64>
    %b0 = piper.read @bucket0 : tensor<64xf32>
    %b1 = piper.read @bucket1 : tensor<64xf32>
    %w0 = piper.unpack @bucket0 @w0 %b0 : tensor<64xf32> -> tensor<8x8xf32>
    %w1 = piper.unpack @bucket1 @w1 %b1 : tensor<64xf32> -> tensor<8x8xf32>
    // Warm-up: two microbatches on the first stage, one on the last.
    %y0, %s0, %k0 = piper.compute @c0_F(%x0, %w0) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0, 1] stream @compute functions [@c0_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<8x8xf32>) -> (tensor<?x8xf32>, !piper.bundle)
    %m0, %k1 = piper.send %y0 on [0, 1] to [2, 3] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %r0, %k2 = piper.recv %m0 on [2, 3] from [0, 1] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %y1, %s1, %k3 = piper.compute @c0_F(%x1, %w0) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0, 1] stream @compute functions [@c0_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<8x8xf32>) -> (tensor<?x8xf32>, !piper.bundle)
    %m1, %k4 = piper.send %y1 on [0, 1] to [2, 3] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %r1, %k9 = piper.recv %m1 on [2, 3] from [0, 1] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %l0, %n0, %s2, %k5 = piper.compute @c1_F(%r0, %t0, %w1) F {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [2, 3] stream @compute functions [@c1_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<?xi64>, tensor<8x8xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dx0, %dw10, %k6 = piper.compute @c1_B(%s2, %w1) B {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [2, 3] stream @compute functions [@c1_B_rows2] [0, 0]
        : (!piper.bundle, tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<8x8xf32>)
    %m2, %k7 = piper.send %dx0 on [2, 3] to [0, 1] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %r2, %k8 = piper.recv %m2 on [0, 1] from [2, 3] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %dw00, %k10 = piper.compute @c0_B(%s0, %r2) B {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0, 1] stream @compute functions [@c0_B_rows2] [0, 0]
        : (!piper.bundle, tensor<?x8xf32>) -> tensor<8x8xf32>
    %l1, %n1, %s3, %k11 = piper.compute @c1_F(%r1, %t1, %w1) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [2, 3] stream @compute functions [@c1_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<?xi64>, tensor<8x8xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dx1, %dw11, %k12 = piper.compute @c1_B(%s3, %w1) B {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [2, 3] stream @compute functions [@c1_B_rows2] [0, 0]
        : (!piper.bundle, tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<8x8xf32>)
    %m3, %k13 = piper.send %dx1 on [2, 3] to [0, 1] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %r3, %k14 = piper.recv %m3 on [0, 1] from [2, 3] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %dw01, %k15 = piper.compute @c0_B(%s1, %r3) B {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0, 1] stream @compute functions [@c0_B_rows2] [0, 0]
        : (!piper.bundle, tensor<?x8xf32>) -> tensor<8x8xf32>
    %g1, %k16 = piper.accumulate @w1 (%dw10, %dw11) on [2, 3] stream @compute : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %g0, %k17 = piper.accumulate @w0 (%dw00, %dw01) on [0, 1] stream @compute : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %l, %k18 = piper.accumulate (%l0, %l1) on [2, 3] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %n, %k19 = piper.accumulate (%n0, %n1) on [2, 3] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %f1 = piper.pack @bucket1 [@w1] (%g1) on [2, 3] : (tensor<8x8xf32>) -> tensor<64xf32>
    %f0 = piper.pack @bucket0 [@w0] (%g0) on [0, 1] : (tensor<8x8xf32>) -> tensor<64xf32>
    %p = piper.pack (%l, %n) on [2, 3] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %h1, %k20 = piper.reduce_scatter sum %f1 on [2, 3] stream @dp_stream : tensor<64xf32> -> tensor<32xf32>
    %h0, %k21 = piper.reduce_scatter sum %f0 on [0, 1] stream @dp_stream : tensor<64xf32> -> tensor<32xf32>
    %both, %k22 = piper.all_reduce sum %p on [0, 1, 2, 3] stream @dp_stream : tensor<2xf32> -> tensor<2xf32>
    %u1, %k23 = piper.update @bucket1 (%h1) scale %both optimizer @group0 on [2, 3] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    %u0, %k24 = piper.update @bucket0 (%h0) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    %v1, %k25 = piper.all_gather %u1 on [2, 3] stream @dp_stream : tensor<32xf32> -> tensor<64xf32>
    %v0, %k26 = piper.all_gather %u0 on [0, 1] stream @dp_stream : tensor<32xf32> -> tensor<64xf32>
    piper.write @bucket1, %v1 : tensor<64xf32>
    piper.write @bucket0, %v0 : tensor<64xf32>
    piper.return %both : tensor<2xf32>
  }
}
