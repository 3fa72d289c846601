// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-place -split-input-file | FileCheck %s

// A strategy that only replicates says where everything runs.

// CHECK-LABEL: piper.mesh @replicated
// CHECK: piper.compute @c_F({{.*}}) F {stage = 0 : i64} on [0, 1, 2] stream @compute
module {
  piper.mesh @replicated ["dp"] [3]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @c_F_rows4}]
  func.func private @c_F_rows4(tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 12 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t0 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.replicate {} on [0, 1, 2]
  }
}

// -----

// An empty strategy runs on the one rank there is.

// CHECK-LABEL: piper.mesh @one
// CHECK: piper.compute @c_F({{.*}}) F {stage = 0 : i64} on [0] stream @compute
module {
  piper.mesh @one ["dp"] [1]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @c_F_rows4}]
  func.func private @c_F_rows4(tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t0 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
}
