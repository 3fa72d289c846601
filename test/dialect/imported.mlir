// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --verify-roundtrip | FileCheck %s
// RUN: piper-opt %s --emit-bytecode | piper-opt | FileCheck %s
// RUN: piper-opt %s --mlir-print-op-generic | piper-opt | FileCheck %s

// One graph of the imported phase, as the importer writes it.

// CHECK: module attributes {piper.phase = "imported"}
module attributes {piper.phase = "imported"} {
  // CHECK: piper.mesh @mesh ["pp", "dp"] [2, 2]
  piper.mesh @mesh ["pp", "dp"] [2, 2]
  // CHECK: piper.stream @compute{{$}}
  piper.stream @compute
  // CHECK: piper.stream @comm {sms = 20 : i64}
  piper.stream @comm {sms = 20 : i64}
  // CHECK: piper.state @embed.weight : tensor<8x4xf32> parameter trainable ["embed.weight", "head.weight"]
  piper.state @"embed.weight" : tensor<8x4xf32> parameter trainable ["embed.weight", "head.weight"]
  // CHECK: piper.state @bn.running_mean : tensor<4xf32> buffer ["bn.running_mean"]
  piper.state @"bn.running_mean" : tensor<4xf32> buffer ["bn.running_mean"]
  // CHECK: piper.state @scale : tensor<4xf32> constant ["scale"]
  piper.state @scale : tensor<4xf32> constant ["scale"]
  // CHECK: piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr", "weight_decay"] config {dampening = 0.000000e+00 : f64}
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr", "weight_decay"] config {dampening = 0.0 : f64}

  // CHECK: piper.chunk @c0_F F operands [1, 1, 1, 1] results [1, 1, 1, 2] [{binding = {rows = 4 : i64}, function = @c0_F_rows4}]
  piper.chunk @c0_F F operands [1, 1, 1, 1] results [1, 1, 1, 2] [{binding = {rows = 4 : i64}, function = @c0_F_rows4}]
  // CHECK: piper.chunk @c0_B B
  piper.chunk @c0_B B operands [2, 1] results [1] [{binding = {rows = 4 : i64}, function = @c0_B_rows4}]
  func.func private @c0_F_rows4(tensor<4x8xi64>, tensor<8x4xf32>, tensor<4xf32>, tensor<4x8xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4x8x4xf32>, tensor<f32>)
  func.func private @c0_B_rows4(tensor<4x8x4xf32>, tensor<f32>, tensor<8x4xf32>) -> tensor<8x4xf32>

  // CHECK: piper.graph @step rows 4 {
  piper.graph @step rows 4 {
    // CHECK: piper.input "args.0" 0 split : tensor<?x8xi64>
    %ids = piper.input "args.0" 0 split : tensor<?x8xi64>
    // CHECK: piper.input "target" 1 split : tensor<?x8xi64>
    %target = piper.input "target" 1 split : tensor<?x8xi64>
    // CHECK: piper.read @embed.weight : tensor<8x4xf32>
    %w = piper.read @"embed.weight" : tensor<8x4xf32>
    %mean = piper.read @"bn.running_mean" : tensor<4xf32>
    // CHECK: %[[Y:.*]]:4, %{{.*}} = piper.compute @c0_F(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) F {stage = 0 : i64} : (tensor<?x8xi64>, tensor<8x4xf32>, tensor<4xf32>, tensor<?x8xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, !piper.bundle)
    %loss, %weight, %new, %saved, %t0 = piper.compute @c0_F(%ids, %w, %mean, %target) F {stage = 0 : i64} : (tensor<?x8xi64>, tensor<8x4xf32>, tensor<4xf32>, tensor<?x8xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, !piper.bundle)
    // CHECK: piper.compute @c0_B(%[[Y]]#3, %{{.*}}) B {stage = 0 : i64} : (!piper.bundle, tensor<8x4xf32>) -> tensor<8x4xf32>
    %g, %t1 = piper.compute @c0_B(%saved, %w) B {stage = 0 : i64} : (!piper.bundle, tensor<8x4xf32>) -> tensor<8x4xf32>
    // CHECK: %[[SUM:.*]], %{{.*}} = piper.accumulate @embed.weight(%{{.*}}) : tensor<8x4xf32> -> tensor<8x4xf32>
    %sum, %t2 = piper.accumulate @"embed.weight" (%g) : tensor<8x4xf32> -> tensor<8x4xf32>
    // CHECK: piper.update @embed.weight(%[[SUM]]) optimizer @group0 : tensor<8x4xf32>
    %t3 = piper.update @"embed.weight" (%sum) optimizer @group0 : tensor<8x4xf32>
    // CHECK: piper.write @bn.running_mean, %[[Y]]#2 : tensor<4xf32>
    piper.write @"bn.running_mean", %new : tensor<4xf32>
    // CHECK: piper.return %[[Y]]#0, %[[Y]]#1 : tensor<f32>, tensor<f32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }

  // CHECK: piper.strategy @strategy {
  piper.strategy @strategy {
    // CHECK: piper.split {} "MB" into 8
    piper.split {} "MB" into 8
    // CHECK: piper.place {stage = 0 : i64} on [0, 1] stream "pp_stream"
    piper.place {stage = 0 : i64} on [0, 1] stream "pp_stream"
    // CHECK: piper.replicate {PASS = "F", stage = "*"} on [0, 1] reduce_stream "dp_stream" {bucket_size = 2.500000e-01 : f64, shard_optimizer}
    piper.replicate {PASS = "F", stage = "*"} on [0, 1] reduce_stream "dp_stream" {bucket_size = 0.25 : f64, shard_optimizer}
    // CHECK: piper.replicate {head} on [2, 3]{{$}}
    piper.replicate {head} on [2, 3]
    // CHECK: piper.order {{\[\[}}{MB = 0 : i64, PASS = "F"}], [{MB = 1 : i64, PASS = "F"}, {MB = 0 : i64, PASS = "B"}]]
    piper.order [[{MB = 0 : i64, PASS = "F"}], [{MB = 1 : i64, PASS = "F"}, {MB = 0 : i64, PASS = "B"}]]
  }
}
