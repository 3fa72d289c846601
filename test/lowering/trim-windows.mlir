// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-trim-windows | FileCheck %s
// RUN: piper-opt %s --piper-trim-windows --linalg-fold-unit-extent-dims -o /dev/null

#row = affine_map<(b, h, w, kh, kw) -> (b, h * 2 + kh, w * 2 + kw)>
#window = affine_map<(b, h, w, kh, kw) -> (kh, kw)>
#out = affine_map<(b, h, w, kh, kw) -> (b, h, w)>

// One window along h, two along w: only the rest along h is cut off.
// CHECK-LABEL: func.func @one_window
// CHECK: %[[TRIMMED:.*]] = tensor.extract_slice %arg0[0, 0, 0] [8, 3, 6] [1, 1, 1] : tensor<8x4x6xf32> to tensor<8x3x6xf32>
// CHECK: linalg.generic {{.*}} ins(%[[TRIMMED]], %arg1 :
func.func @one_window(%x: tensor<8x4x6xf32>, %k: tensor<3x3xf32>, %init: tensor<8x1x2xf32>) -> tensor<8x1x2xf32> {
  %0 = linalg.generic {indexing_maps = [#row, #window, #out],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %k : tensor<8x4x6xf32>, tensor<3x3xf32>) outs(%init : tensor<8x1x2xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %1, %c : f32
    linalg.yield %2 : f32
  } -> tensor<8x1x2xf32>
  return %0 : tensor<8x1x2xf32>
}

#strided = affine_map<(d, k) -> (d * 3 + k * 2)>
#first = affine_map<(d, k) -> (k)>
#second = affine_map<(d, k) -> (d)>

// A window of one element and dilated ones: 2 * (3 - 1) + 1 = 5 of 9 elements.
// CHECK-LABEL: func.func @dilated
// CHECK: tensor.extract_slice %arg0[0] [5] [1]
func.func @dilated(%x: tensor<9xf32>, %k: tensor<3xf32>, %init: tensor<1xf32>) -> tensor<1xf32> {
  %0 = linalg.generic {indexing_maps = [#strided, #first, #second], iterator_types = ["parallel", "reduction"]}
      ins(%x, %k : tensor<9xf32>, tensor<3xf32>) outs(%init : tensor<1xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.addf %a, %c : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  return %0 : tensor<1xf32>
}

// Windows that cover their operand, or whose loops all run on, stay.
// CHECK-LABEL: func.func @exact
// CHECK-NOT: tensor.extract_slice
func.func @exact(%x: tensor<5xf32>, %k: tensor<3xf32>, %init: tensor<1xf32>,
                 %y: tensor<9xf32>, %more: tensor<2xf32>) -> (tensor<1xf32>, tensor<2xf32>) {
  %0 = linalg.generic {indexing_maps = [#strided, #first, #second], iterator_types = ["parallel", "reduction"]}
      ins(%x, %k : tensor<5xf32>, tensor<3xf32>) outs(%init : tensor<1xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.addf %a, %c : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  %2 = linalg.generic {indexing_maps = [#strided, #first, #second], iterator_types = ["parallel", "reduction"]}
      ins(%y, %k : tensor<9xf32>, tensor<3xf32>) outs(%more : tensor<2xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.addf %a, %c : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  return %0, %2 : tensor<1xf32>, tensor<2xf32>
}
