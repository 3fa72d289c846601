// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-specialize -split-input-file -verify-diagnostics

module {
  piper.mesh @mesh ["dp"] [2]
  // expected-note @below {{the chunk}}
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @two}]
  func.func private @two(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 7 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-error @below {{expected a member of @c_F for the binding rows = 1 of replica 1, got none}}
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 2
    piper.replicate {} on [0, 1]
  }
}

// -----

module {
  piper.mesh @mesh ["dp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 1 : i64}, function = @one}]
  func.func private @one(tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 7 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-error @below {{expected at least one row in each part, got 7 rows for 2 replicas of 4 microbatches}}
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 4
    piper.replicate {} on [0, 1]
  }
}
