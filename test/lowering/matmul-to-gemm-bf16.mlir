// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-matmul-to-gemm --canonicalize | FileCheck %s

#map = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// Rounded at once, also where it is reshaped first.
// CHECK-LABEL: func.func @rounded
// CHECK: %[[Y:.*]] = piper.gemm ins(%arg0, %arg1 : tensor<4x3xbf16>, tensor<5x3xbf16>) outs(%{{.*}} : tensor<4x5xbf16>) {transpose_rhs} -> tensor<4x5xbf16>
// CHECK: %[[R:.*]] = tensor.expand_shape %[[Y]] {{.*}} into tensor<2x2x5xbf16>
// CHECK: return %[[R]]
func.func @rounded(%a: tensor<4x3xbf16>, %b: tensor<5x3xbf16>) -> tensor<2x2x5xbf16> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<3x5xbf16>
  %t = linalg.transpose ins(%b : tensor<5x3xbf16>) outs(%0 : tensor<3x5xbf16>) permutation = [1, 0]
  %1 = tensor.empty() : tensor<4x5xf32>
  %2 = linalg.fill ins(%zero : f32) outs(%1 : tensor<4x5xf32>) -> tensor<4x5xf32>
  %3 = linalg.matmul ins(%a, %t : tensor<4x3xbf16>, tensor<3x5xbf16>) outs(%2 : tensor<4x5xf32>) -> tensor<4x5xf32>
  %4 = tensor.expand_shape %3 [[0, 1], [2]] output_shape [2, 2, 5] : tensor<4x5xf32> into tensor<2x2x5xf32>
  %5 = tensor.empty() : tensor<2x2x5xbf16>
  %6 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%4 : tensor<2x2x5xf32>) outs(%5 : tensor<2x2x5xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %x = arith.truncf %in : f32 to bf16
    linalg.yield %x : bf16
  } -> tensor<2x2x5xbf16>
  return %6 : tensor<2x2x5xbf16>
}

// Kept in f32 for those who want it.
// CHECK-LABEL: func.func @wanted
// CHECK: piper.gemm {{.*}} -> tensor<2x2xf32>
// CHECK: arith.truncf
func.func @wanted(%a: tensor<2x3xbf16>, %b: tensor<3x2xbf16>) -> (tensor<2x2xf32>, tensor<2x2xbf16>) {
  %zero = arith.constant 0.0 : f32
  %1 = tensor.empty() : tensor<2x2xf32>
  %2 = linalg.fill ins(%zero : f32) outs(%1 : tensor<2x2xf32>) -> tensor<2x2xf32>
  %3 = linalg.matmul ins(%a, %b : tensor<2x3xbf16>, tensor<3x2xbf16>) outs(%2 : tensor<2x2xf32>) -> tensor<2x2xf32>
  %4 = tensor.empty() : tensor<2x2xbf16>
  %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%3 : tensor<2x2xf32>) outs(%4 : tensor<2x2xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %x = arith.truncf %in : f32 to bf16
    linalg.yield %x : bf16
  } -> tensor<2x2xbf16>
  return %3, %5 : tensor<2x2xf32>, tensor<2x2xbf16>
}

// Sums in bf16 have no kernel.
// CHECK-LABEL: func.func @narrow_sum
// CHECK: linalg.matmul
func.func @narrow_sum(%a: tensor<2x3xbf16>, %b: tensor<3x2xbf16>, %c: tensor<2x2xbf16>) -> tensor<2x2xbf16> {
  %0 = linalg.matmul ins(%a, %b : tensor<2x3xbf16>, tensor<3x2xbf16>) outs(%c : tensor<2x2xbf16>) -> tensor<2x2xbf16>
  return %0 : tensor<2x2xbf16>
}
