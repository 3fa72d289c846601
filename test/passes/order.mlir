// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-split --piper-place --piper-order | FileCheck %s
// RUN: piper-opt %s --piper-split --piper-place --piper-order --verify-roundtrip

// Microbatch 1 goes first, its backward before anything of microbatch 0. The stage has two blocks: a token joins the last node of a group
// to the first of the next. Data that joins
// two groups needs no token. Blocks without backward (nothing to train) and graphs without backward skip what they do not have.

// CHECK-LABEL: piper.graph @step
// CHECK:       %{{.*}}, %[[T0:.*]] = piper.compute @c0_F({{.*}}) F {MB = 1 : i64, _block = 0 : i64, stage = 0 : i64}
// CHECK:       %{{.*}}, %[[T1:.*]] = piper.compute @c1_F({{.*}}) F {MB = 1 : i64, _block = 1 : i64, stage = 0 : i64}
// CHECK:       %{{.*}}, %[[T2:.*]] = piper.compute @c1_B({{[^)]*}}) B {MB = 1 : i64, _block = 1 : i64, stage = 0 : i64}
// CHECK:       piper.compute @c0_F({{.*}}) after(%[[T2]], %[[T1]]) F {MB = 0 : i64, _block = 0 : i64, stage = 0 : i64}
// CHECK:       piper.compute @c1_F({{[^)]*}}) F {MB = 0 : i64, _block = 1 : i64, stage = 0 : i64}
// CHECK:       piper.compute @c1_B({{[^)]*}}) B {MB = 0 : i64, _block = 1 : i64, stage = 0 : i64}
// CHECK-LABEL: piper.graph @evaluate
// CHECK:       %{{.*}}, %[[E1:.*]] = piper.compute @e_F({{.*}}) F {MB = 1 : i64, stage = 0 : i64}
// CHECK:       piper.compute @e_F({{.*}}) after(%[[E1]]) F {MB = 0 : i64, stage = 0 : i64}
module {
  piper.mesh @mesh ["dp"] [1]
  piper.state @b : tensor<4xf32> parameter trainable ["b"]
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @e_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @e_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  func.func private @c1_B_rows2(tensor<2x4xf32>) -> tensor<4xf32>
  func.func private @e_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64, _block = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%y) F {stage = 0 : i64, _block = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %gb, %t2 = piper.compute @c1_B(%s1) B {stage = 0 : i64, _block = 1 : i64} : (!piper.bundle) -> tensor<4xf32>
    %sumb, %t5 = piper.accumulate @b (%gb) : tensor<4xf32> -> tensor<4xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.graph @evaluate rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @e_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.order [[{stage = 0 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 0 : i64, PASS = "F"}]]
    piper.split {} "MB" into 2
    piper.order [[{MB = 1 : i64, PASS = "F"}], [{_block = 0 : i64, MB = 1 : i64, PASS = "B"}], [{MB = 0 : i64, PASS = "F"}]]
  }
}
