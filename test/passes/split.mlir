// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split | FileCheck %s
// RUN: piper-opt %s --piper-split --verify-roundtrip

// Nodes and split inputs are copied; reads and whole inputs are shared. The buffer goes from microbatch to microbatch.

// CHECK-LABEL: piper.graph @step
// CHECK:       %[[MASK:.*]] = piper.input "mask" 2 : tensor<4xf32>
// CHECK:       %[[W:.*]] = piper.read @w
// CHECK:       %[[MEAN:.*]] = piper.read @mean
// CHECK:       %[[X0:.*]] = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x4xf32>
// CHECK:       %[[Y0:.*]] = piper.input "target" 1 split microbatch 0 of 2 : tensor<?x4xf32>
// CHECK:       %[[F0:.*]]:4, %{{.*}} = piper.compute @c_F(%[[X0]], %[[Y0]], %[[MASK]], %[[W]], %[[MEAN]]) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2
// CHECK:       %[[B0:.*]], %{{.*}} = piper.compute @c_B(%[[F0]]#3, %[[W]]) B {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2
// CHECK:       %[[X1:.*]] = piper.input "args.0" 0 split microbatch 1 of 2
// CHECK:       %[[Y1:.*]] = piper.input "target" 1 split microbatch 1 of 2
// CHECK:       %[[F1:.*]]:4, %{{.*}} = piper.compute @c_F(%[[X1]], %[[Y1]], %[[MASK]], %[[W]], %[[F0]]#2) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2
// CHECK:       %[[B1:.*]], %{{.*}} = piper.compute @c_B(%[[F1]]#3, %[[W]]) B {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2
// CHECK:       piper.write @mean, %[[F1]]#2
// CHECK:       %[[G:.*]], %{{.*}} = piper.accumulate @w(%[[B0]], %[[B1]])
// CHECK:       piper.update @w(%[[G]]) optimizer @group0
// CHECK-NOT:   piper.update
// CHECK:       %[[LOSS:.*]], %{{.*}} = piper.accumulate(%[[F0]]#0, %[[F1]]#0)
// CHECK:       %[[WEIGHT:.*]], %{{.*}} = piper.accumulate(%[[F0]]#1, %[[F1]]#1)
// CHECK:       piper.return %[[LOSS]], %[[WEIGHT]]
// CHECK-LABEL: piper.graph @evaluate
// CHECK:       piper.compute @c_eval_F{{.*}} {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2
// CHECK:       piper.compute @c_eval_F{{.*}} {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2
// CHECK-NOT:   piper.compute
module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["dp"] [1]
  piper.state @w : tensor<4x4xf32> parameter trainable ["w"]
  piper.state @mean : tensor<4xf32> buffer ["mean"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.chunk @c_F F operands [1, 1, 1, 1, 1] results [1, 1, 1, 1] [{binding = {rows = 4 : i64}, function = @c_F_rows4}]
  piper.chunk @c_B B operands [1, 1] results [1] [{binding = {rows = 4 : i64}, function = @c_B_rows4}]
  piper.chunk @c_eval_F F operands [1, 1, 1, 1, 1] results [1, 1] [{binding = {rows = 4 : i64}, function = @c_eval_F_rows4}]
  func.func private @c_F_rows4(tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4x4xf32>)
  func.func private @c_B_rows4(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.func private @c_eval_F_rows4(tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 8 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y = piper.input "target" 1 split : tensor<?x4xf32>
    %mask = piper.input "mask" 2 : tensor<4xf32>
    %w = piper.read @w : tensor<4x4xf32>
    %mean = piper.read @mean : tensor<4xf32>
    %loss, %weight, %new, %saved, %t0 = piper.compute @c_F(%x, %y, %mask, %w, %mean) F {stage = 0 : i64}
        : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, !piper.bundle)
    piper.write @mean, %new : tensor<4xf32>
    %g, %t1 = piper.compute @c_B(%saved, %w) B {stage = 0 : i64} : (!piper.bundle, tensor<4x4xf32>) -> tensor<4x4xf32>
    %sum, %t2 = piper.accumulate @w (%g) : tensor<4x4xf32> -> tensor<4x4xf32>
    %t3 = piper.update @w (%sum) optimizer @group0 : tensor<4x4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.graph @evaluate rows 8 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y = piper.input "target" 1 split : tensor<?x4xf32>
    %mask = piper.input "mask" 2 : tensor<4xf32>
    %w = piper.read @w : tensor<4x4xf32>
    %mean = piper.read @mean : tensor<4xf32>
    %loss, %weight, %t0 = piper.compute @c_eval_F(%x, %y, %mask, %w, %mean) F {stage = 0 : i64}
        : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {stage = "*"} "MB" into 2
  }
}
