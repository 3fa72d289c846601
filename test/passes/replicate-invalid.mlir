// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-place --piper-replicate -split-input-file -verify-diagnostics

module {
  piper.mesh @mesh ["dp"] [2]
  piper.state @w : tensor<4xf32> parameter trainable ["w"]
  piper.chunk @c_F F operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %w = piper.read @w : tensor<4xf32>
    // expected-error @below {{expected a replicate directive for F {stage = 0} on the ranks [0, 1], got none}}
    %loss, %weight, %t1 = piper.compute @c_F(%x, %w) F {stage = 0 : i64} : (tensor<?x4xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-note @below {{placed here}}
    piper.place {stage = 0 : i64} on [0, 1] stream "pp_stream"
  }
}

// -----

module {
  piper.mesh @mesh ["dp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-note @below {{the other one}}
    piper.replicate {stage = 0 : i64} on [0, 1]
    // expected-error @below {{expected one replicate directive for F {stage = 0}, got two}}
    piper.replicate {} on [0, 1] {shard_optimizer}
  }
}

// -----

module {
  piper.mesh @mesh ["dp"] [1]
  piper.state @a : tensor<4xf32> buffer ["a"]
  piper.state @b : tensor<4xf32> buffer ["b"]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @c_F_rows4}]
  func.func private @c_F_rows4(tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-note @below {{this value is not made on a group}}
    %b = piper.read @b : tensor<4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    // expected-error @below {{expected a value that a node makes}}
    piper.write @a, %b : tensor<4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
}

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 4 : i64}, function = @c_F_rows4}]
  func.func private @c_F_rows4(tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    // expected-error @below {{expected nodes on the devices [1], got F {stage = 0} on [0]}}
    piper.replicate {stage = 0 : i64} on [1]
  }
}
