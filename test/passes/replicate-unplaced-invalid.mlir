// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-replicate -verify-diagnostics

// Nodes have their device groups from piper-place.
module {
  piper.mesh @mesh ["dp"] [2]
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-error @below {{expected a device group, got none}}
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.replicate {stage = 0 : i64} on [0, 1]
  }
}
