// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-order | FileCheck %s

// A backward that is divided: W of microbatch 0 waits for I of microbatch 1, and B means both.

// CHECK: %{{.*}}, %[[I0:.*]] = piper.compute @c_I({{[^)]*}}) I {MB = 0 : i64, stage = 0 : i64}
// CHECK: %{{.*}}, %[[I1:.*]] = piper.compute @c_I({{[^)]*}}) after(%[[I0]]) I {MB = 1 : i64, stage = 0 : i64}
// CHECK: %{{.*}}, %[[W0:.*]] = piper.compute @c_W({{[^)]*}}) after(%[[I1]]) W {MB = 0 : i64, stage = 0 : i64}
// CHECK: piper.compute @c_W({{[^)]*}}) W {MB = 1 : i64, stage = 0 : i64}
// CHECK: piper.compute @c_I({{[^)]*}}) after(%[[W0]]) I {MB = 2 : i64, stage = 0 : i64}
// CHECK: piper.compute @c_W({{[^)]*}}) W {MB = 2 : i64, stage = 0 : i64}
module {
  piper.mesh @mesh ["dp"] [1]
  piper.state @w : tensor<4x4xf32> parameter trainable ["w"]
  piper.chunk @c_F F operands [1, 1] results [1, 1, 1, 1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  piper.chunk @c_I I operands [1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c_I_rows2}]
  piper.chunk @c_W W operands [1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c_W_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>, tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>)
  func.func private @c_I_rows2(tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c_W_rows2(tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  piper.graph @step rows 6 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %w = piper.read @w : tensor<4x4xf32>
    %loss, %weight, %y, %only_i, %for_w, %t0 = piper.compute @c_F(%x, %w) F {stage = 0 : i64}
        : (tensor<?x4xf32>, tensor<4x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<?x4xf32>, !piper.bundle, !piper.bundle)
    %i_to_w, %t1 = piper.compute @c_I(%only_i, %for_w) I {stage = 0 : i64} : (!piper.bundle, !piper.bundle) -> !piper.bundle
    %g, %t2 = piper.compute @c_W(%for_w, %i_to_w) W {stage = 0 : i64} : (!piper.bundle, !piper.bundle) -> tensor<4x4xf32>
    %sum, %t3 = piper.accumulate @w (%g) : tensor<4x4xf32> -> tensor<4x4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 3
    piper.order [[{MB = 0 : i64, PASS = "I"}], [{MB = 1 : i64, PASS = "BI"}], [{MB = 0 : i64, PASS = "BW"}], [{MB = 2 : i64, PASS = "B"}]]
  }
}
