// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-specialize | FileCheck %s
// RUN: piper-opt %s --piper-split --piper-place --piper-specialize --verify-roundtrip

// 7 rows over 2 replicas are 4 and 3; over 2 microbatches those are 2 and 2, and 2 and 1, as torch.tensor_split divides them.

// CHECK: {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0, 1] stream @compute functions [@two] [0, 0] :
// CHECK: piper.compute @any_F({{.*}} functions [@any] [0, 0] :
// CHECK: {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0, 1] stream @compute functions [@two, @one] [0, 1] :
// CHECK: piper.compute @any_F({{.*}} functions [@any] [0, 0] :
module {
  piper.mesh @mesh ["dp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 1 : i64}, function = @one}, {binding = {rows = 2 : i64}, function = @two}]
  piper.chunk @any_F F operands [1] results [1] [{binding = {}, function = @any}]
  func.func private @one(tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  func.func private @two(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  func.func private @any(tensor<f32>) -> tensor<f32>
  piper.graph @step rows 7 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %double, %t2 = piper.compute @any_F(%loss) F {stage = 0 : i64} : (tensor<f32>) -> tensor<f32>
    piper.return %double, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 2
    piper.replicate {} on [0, 1]
  }
}
