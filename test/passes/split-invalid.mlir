// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split -split-input-file -verify-diagnostics

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 1 : i64}, function = @c_F_rows1}]
  func.func private @c_F_rows1(tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  // expected-note @below {{the batch of this graph}}
  piper.graph @step rows 3 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t0 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected at most as many microbatches as rows, got 4 microbatches of 3 rows}}
    piper.split {} "MB" into 4
  }
}

// -----

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 1 : i64}, function = @c_F_rows1}]
  func.func private @c_F_rows1(tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t0 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected a known tag, got "PP"; known tags: stage (0 to 0)}}
    piper.split {PP = "*"} "MB" into 4
  }
}

// -----

module {
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @c0_F_rows1}]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 1 : i64}, function = @c_F_rows1}]
  func.func private @c0_F_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @c_F_rows1(tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{this node}}
    %loss, %weight, %t1 = piper.compute @c_F(%y) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected a filter that matches every node, got {stage = 0}, which leaves out F {stage = 1}}}
    piper.split {stage = 0 : i64} "MB" into 4
  }
}

// -----

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 1 : i64}, function = @c_F_rows1}]
  func.func private @c_F_rows1(tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-note @below {{this node}}
    %loss, %weight, %t0 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected nodes without the tag "stage", got F {stage = 0}}}
    piper.split {} "stage" into 4
  }
}

// -----

module {
  piper.strategy @strategy {
    // expected-note @below {{the first one}}
    piper.split {} "MB" into 4
    // expected-error @below {{expected one split per strategy, got 2}}
    piper.split {} "MB" into 4
  }
}
