// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-place -split-input-file -verify-diagnostics

module {
  piper.mesh @mesh ["pp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-error @below {{expected one device group for F {block = 0, stage = 0}, got [0] and [1]}}
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64, block = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-note @below {{one group given here}}
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    // expected-note @below {{the other here}}
    piper.place {block = 0 : i64} on [1] stream "pp_stream"
  }
}

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-error @below {{expected a directive that places F {stage = 1}, got none}}
    %loss, %weight, %t1 = piper.compute @c1_F(%y) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
  }
}

// -----

module {
  piper.mesh @mesh ["pp"] [3]
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-error @below {{expected device groups of one size on both sides of a transfer, got 1 ranks [0] and 2 ranks [1, 2]}}
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{used here}}
    %loss, %weight, %t1 = piper.compute @c1_F(%y) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 1 : i64} on [1, 2] stream "pp_stream"
  }
}

// -----

module {
  piper.mesh @mesh ["pp"] [3]
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c1_F(%y) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-note @below {{the other group}}
    piper.place {stage = 0 : i64} on [0, 1] stream "pp_stream"
    // expected-error @below {{expected device groups that are equal or have no rank in common, got [0, 1] and [1, 2]}}
    piper.place {stage = 1 : i64} on [1, 2] stream "pp_stream"
  }
}

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  // expected-error @below {{expected a place or replicate directive for a mesh of 2 ranks, got none}}
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
}
