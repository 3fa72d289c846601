// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-fold-conversions --canonicalize | FileCheck %s

#map = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// Through reshapes; who reads the rounded value still does.
// CHECK-LABEL: func.func @tensors
// CHECK-SAME: (%[[X:.*]]: tensor<4x6xf32>)
// CHECK: %[[ROUNDED:.*]] = linalg.generic
// CHECK: arith.truncf
// CHECK: %[[RESHAPED:.*]] = tensor.expand_shape %[[X]] {{.*}} : tensor<4x6xf32> into tensor<2x2x6xf32>
// CHECK-NOT: arith.extf
// CHECK: return %[[ROUNDED]], %[[RESHAPED]]
func.func @tensors(%x: tensor<4x6xf32>) -> (tensor<4x6xbf16>, tensor<2x2x6xf32>) {
  %0 = tensor.empty() : tensor<4x6xbf16>
  %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x6xf32>) outs(%0 : tensor<4x6xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x6xbf16>
  %2 = tensor.expand_shape %1 [[0, 1], [2]] output_shape [2, 2, 6] : tensor<4x6xbf16> into tensor<2x2x6xbf16>
  %3 = tensor.empty() : tensor<2x2x6xf32>
  %4 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%2 : tensor<2x2x6xbf16>) outs(%3 : tensor<2x2x6xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %t = arith.extf %in : bf16 to f32
    linalg.yield %t : f32
  } -> tensor<2x2x6xf32>
  return %1, %4 : tensor<4x6xbf16>, tensor<2x2x6xf32>
}

// CHECK-LABEL: func.func @elements
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: arith.mulf %[[SUM]], %[[SUM]]
func.func @elements(%x: f32, %y: f32) -> f32 {
  %0 = arith.addf %x, %y : f32
  %1 = arith.truncf %0 : f32 to bf16
  %2 = arith.extf %1 : bf16 to f32
  %3 = arith.mulf %2, %2 : f32
  return %3 : f32
}

// Another type than it was: stays.
// CHECK-LABEL: func.func @widened_further
// CHECK: arith.truncf
// CHECK: arith.extf
func.func @widened_further(%x: f32) -> f64 {
  %0 = arith.truncf %x : f32 to bf16
  %1 = arith.extf %0 : bf16 to f64
  return %1 : f64
}
