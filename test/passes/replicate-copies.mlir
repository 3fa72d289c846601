// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate | FileCheck %s
// RUN: piper-opt %s --piper-schedule-pipeline --verify-roundtrip

// Each group trains one of the microbatches with its copy of the state: one bucket over both keeps the copies equal, and the loss has a part
// from each.

// CHECK: piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 32 ranks [0, 1] optimizer @group0
// CHECK-LABEL: piper.graph @step
// CHECK: %[[L0:.*]], %{{.*}} = piper.accumulate(%{{.*}}#0) on [0]
// CHECK: %[[L1:.*]], %{{.*}} = piper.accumulate(%{{.*}}#0) on [1]
// CHECK: %[[W0:.*]], %{{.*}} = piper.accumulate(%{{.*}}#1) on [0]
// CHECK: %[[W1:.*]], %{{.*}} = piper.accumulate(%{{.*}}#1) on [1]
// CHECK: %[[P:.*]] = piper.pack(%[[L0]], %[[L1]], %[[W0]], %[[W1]]) into [0, 0, 1, 1] on [0, 1]
// CHECK: piper.all_reduce sum %[[P]] on [0, 1]
module {
  piper.mesh @mesh ["pp"] [2]
  piper.state @w : tensor<4xf32> parameter trainable ["w"]
  piper.optimizer @group0 "sgd" slots [] scalars ["lr"] config {}
  piper.chunk @c_F F operands [1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  piper.chunk @c_B B operands [1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c_B_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  func.func private @c_B_rows2(tensor<2x4xf32>, tensor<4xf32>) -> tensor<4xf32>
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %w = piper.read @w : tensor<4xf32>
    %loss, %weight, %s, %t0 = piper.compute @c_F(%x, %w) F {stage = 0 : i64} : (tensor<?x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %g, %t1 = piper.compute @c_B(%s, %w) B {stage = 0 : i64} : (!piper.bundle, tensor<4xf32>) -> tensor<4xf32>
    %sum, %t2 = piper.accumulate @w (%g) : tensor<4xf32> -> tensor<4xf32>
    %t3 = piper.update @w (%sum) optimizer @group0 : tensor<4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 2
    piper.place {stage = 0 : i64, MB = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 0 : i64, MB = 1 : i64} on [1] stream "pp_stream"
  }
}
