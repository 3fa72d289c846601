// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-replicate --piper-list-schedule | FileCheck %s

// Without backwards a stage runs ahead of the next by what is being sent and what is being used, and no further: what has arrived and is not
// used yet stays bounded.

// CHECK: piper.compute @c0_F({{.*}} {MB = 0 :
// CHECK: piper.compute @c0_F({{.*}} {MB = 1 :
// CHECK: piper.compute @c1_F({{.*}} {MB = 0 :
// CHECK: piper.compute @c0_F({{.*}} {MB = 2 :
// CHECK: piper.compute @c1_F({{.*}} {MB = 1 :
// CHECK: piper.compute @c0_F({{.*}} {MB = 3 :
// CHECK: piper.compute @c1_F({{.*}} {MB = 2 :
// CHECK: piper.compute @c1_F({{.*}} {MB = 3 :
module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["pp"] [2]
  piper.state @a : tensor<16xf32> parameter trainable ["a"]
  piper.state @b : tensor<16xf32> parameter trainable ["b"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.chunk @c0_F F operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  func.func private @c1_F_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  piper.graph @evaluate rows 8 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %a = piper.read @a : tensor<16xf32>
    %b = piper.read @b : tensor<16xf32>
    %y, %s0, %t0 = piper.compute @c0_F(%x, %a) F {stage = 0 : i64} : (tensor<?x4xf32>, tensor<16xf32>) -> (tensor<?x4xf32>, !piper.bundle)
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%y, %b) F {stage = 1 : i64} : (tensor<?x4xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 4
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 1 : i64} on [1] stream "pp_stream"
  }
}
