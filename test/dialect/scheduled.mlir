// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --verify-roundtrip | FileCheck %s
// RUN: piper-opt %s --emit-bytecode | piper-opt | FileCheck %s
// RUN: piper-opt %s --mlir-print-op-generic | piper-opt | FileCheck %s

// Every operation of the scheduled phase in its longest form.

module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["pp", "dp"] [2, 2]
  piper.stream @compute
  piper.stream @pp
  piper.stream @dp
  piper.state @w : tensor<8x4xf32> parameter trainable ["w"]
  piper.state @b : tensor<4xf32> parameter trainable ["b"]
  piper.optimizer @group0 "sgd" slots [] scalars ["lr", "weight_decay"] config {}
  // CHECK: piper.bucket @bucket0 [@w, @b] offsets [0, 32] elements 36 padded 36 ranks [0, 1] optimizer @group0 {gather_stream = @dp, reduce_stream = @dp, shard_grads, shard_optimizer, shard_params}
  piper.bucket @bucket0 [@w, @b] offsets [0, 32] elements 36 padded 36 ranks [0, 1] optimizer @group0 {gather_stream = @dp, reduce_stream = @dp, shard_grads, shard_optimizer, shard_params}
  piper.chunk @f F operands [1, 1, 1] results [1, 1, 2] [{binding = {rows = 2 : i64}, function = @f_rows2}, {binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1] results [1, 1, 1, 1] [{binding = {rows = 2 : i64}, function = @l_rows2}]
  func.func private @f_rows2(tensor<2x8xf32>, tensor<8x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2x8xf32>, tensor<2x4xf32>, tensor<8x4xf32>)
  func.func private @f_rows1(tensor<1x8xf32>, tensor<8x4xf32>, tensor<4xf32>) -> (tensor<1x4xf32>, tensor<1x8xf32>, tensor<1x4xf32>, tensor<8x4xf32>)
  func.func private @l_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<8x4xf32>, tensor<4xf32>)

  piper.graph @step rows 8 {
    // CHECK: %[[X:.*]] = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x8xf32>
    %x = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x8xf32>
    // CHECK: %[[SHARD:.*]] = piper.read @bucket0 : tensor<18xf32>
    %shard = piper.read @bucket0 : tensor<18xf32>
    // CHECK: %[[FLAT:.*]], %[[T0:.*]] = piper.all_gather %[[SHARD]] on [0, 1] stream @dp : tensor<18xf32> -> tensor<36xf32>
    %flat, %t0 = piper.all_gather %shard on [0, 1] stream @dp : tensor<18xf32> -> tensor<36xf32>
    // CHECK: piper.unpack @bucket0 @w %[[FLAT]] : tensor<36xf32> -> tensor<8x4xf32>
    %w = piper.unpack @bucket0 @w %flat : tensor<36xf32> -> tensor<8x4xf32>
    %b = piper.unpack @bucket0 @b %flat : tensor<36xf32> -> tensor<4xf32>
    // CHECK: %[[F:.*]]:3, %[[T1:.*]] = piper.compute @f(%{{.*}}, %{{.*}}, %{{.*}}) after(%[[T0]], %[[T0]]) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0, 1] stream @compute functions [@f_rows2, @f_rows1] [0, 1] : (tensor<?x8xf32>, tensor<8x4xf32>, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<?x8xf32>, !piper.bundle)
    %y, %k, %saved, %t1 = piper.compute @f(%x, %w, %b) after(%t0, %t0) F {MB = 1, stage = 0} microbatch 1 of 2 on [0, 1] stream @compute functions [@f_rows2, @f_rows1] [0, 1]
        : (tensor<?x8xf32>, tensor<8x4xf32>, tensor<4xf32>) -> (tensor<?x4xf32>, tensor<?x8xf32>, !piper.bundle)
    // CHECK: %[[M:.*]], %[[T2:.*]] = piper.send %[[F]]#0 after(%[[T1]]) on [0, 1] to [2, 3] stream @pp microbatch 1 of 2 tags {MB = 1 : i64} : tensor<?x4xf32>
    %m, %t2 = piper.send %y after(%t1) on [0, 1] to [2, 3] stream @pp microbatch 1 of 2 tags {MB = 1 : i64} : tensor<?x4xf32>
    // CHECK: %[[R:.*]], %[[T3:.*]] = piper.recv %[[M]] after(%[[T2]]) on [2, 3] from [0, 1] stream @pp microbatch 1 of 2 tags {MB = 1 : i64} : tensor<?x4xf32>
    %r, %t3 = piper.recv %m after(%t2) on [2, 3] from [0, 1] stream @pp microbatch 1 of 2 tags {MB = 1 : i64} : tensor<?x4xf32>
    // CHECK: piper.compute @l(%[[R]]) F {stage = 1 : i64} on [2, 3]
    %loss, %weight, %gw, %gb, %t4 = piper.compute @l(%r) F {stage = 1} on [2, 3] stream @compute : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<8x4xf32>, tensor<4xf32>)
    // CHECK: piper.send %[[F]]#2 on [0, 1] to [2, 3] stream @pp : !piper.bundle
    %m2, %t5 = piper.send %saved on [0, 1] to [2, 3] stream @pp : !piper.bundle
    // CHECK: piper.recv %{{.*}} on [2, 3] from [0, 1] stream @pp : !piper.bundle
    %r2, %t6 = piper.recv %m2 on [2, 3] from [0, 1] stream @pp : !piper.bundle
    // CHECK: piper.accumulate @w(%{{.*}}, %{{.*}}) after(%{{.*}}) on [2, 3] stream @compute : tensor<8x4xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
    %aw, %t7 = piper.accumulate @w (%gw, %gw) after(%t4) on [2, 3] stream @compute : tensor<8x4xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
    // CHECK: piper.accumulate(%{{.*}}) on [2, 3] stream @compute : tensor<f32> -> tensor<f32>
    %al, %t8 = piper.accumulate (%loss) on [2, 3] stream @compute : tensor<f32> -> tensor<f32>
    // CHECK: piper.pack @bucket0 [@w](%{{.*}}) on [2, 3] : (tensor<8x4xf32>) -> tensor<36xf32>
    %grads = piper.pack @bucket0 [@w] (%aw) on [2, 3] : (tensor<8x4xf32>) -> tensor<36xf32>
    // CHECK: piper.pack @bucket0 []() on [0, 1] : () -> tensor<36xf32>
    %zero = piper.pack @bucket0 [] () on [0, 1] : () -> tensor<36xf32>
    // CHECK: %[[PAIR:.*]] = piper.pack(%{{.*}}, %{{.*}}) : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %pair = piper.pack (%al, %weight) : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    // CHECK: %[[BOTH:.*]], %{{.*}} = piper.all_reduce sum %[[PAIR]] on [0, 1, 2, 3] stream @dp : tensor<2xf32> -> tensor<2xf32>
    %both, %t9 = piper.all_reduce sum %pair on [0, 1, 2, 3] stream @dp : tensor<2xf32> -> tensor<2xf32>
    // CHECK: %[[G:.*]], %[[T10:.*]] = piper.reduce_scatter sum %{{.*}} on [0, 1] stream @dp : tensor<36xf32> -> tensor<18xf32>
    %g, %t10 = piper.reduce_scatter sum %zero on [0, 1] stream @dp : tensor<36xf32> -> tensor<18xf32>
    // CHECK: %{{.*}}, %{{.*}} = piper.update @bucket0(%[[G]]) scale %[[BOTH]] after(%[[T10]]) optimizer @group0 on [0, 1] stream @compute : tensor<18xf32>, tensor<2xf32> -> tensor<18xf32>
    %new, %t11 = piper.update @bucket0 (%g) scale %both after(%t10) optimizer @group0 on [0, 1] stream @compute : tensor<18xf32>, tensor<2xf32> -> tensor<18xf32>
    // CHECK: piper.write @bucket0, %{{.*}} : tensor<18xf32>
    piper.write @bucket0, %new : tensor<18xf32>
    // CHECK: piper.broadcast %{{.*}} root 1 on [0, 1] stream @dp : tensor<36xf32> -> tensor<36xf32>
    %bc, %t12 = piper.broadcast %flat root 1 on [0, 1] stream @dp : tensor<36xf32> -> tensor<36xf32>
    // CHECK: piper.all_to_all %{{.*}} on [0, 1] stream @dp : tensor<?x8xf32> -> tensor<?x8xf32>
    %a2a, %t13 = piper.all_to_all %k on [0, 1] stream @dp : tensor<?x8xf32> -> tensor<?x8xf32>
    // CHECK: piper.all_reduce max %{{.*}} after(%{{.*}}) on [0, 1] stream @dp : tensor<36xf32> -> tensor<36xf32>
    %mx, %t14 = piper.all_reduce max %bc after(%t13) on [0, 1] stream @dp : tensor<36xf32> -> tensor<36xf32>
    // CHECK: piper.return %[[BOTH]] : tensor<2xf32>
    piper.return %both : tensor<2xf32>
  }
}
