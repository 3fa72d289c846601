// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-matmul-to-gemm | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// CHECK-LABEL: func.func @three
// CHECK: %[[A:.*]] = piper.gemm ins(%arg0, %arg1 {{.*}}) outs(%{{.*}}) -> tensor<4x4xf32>
// CHECK: %[[B:.*]] = piper.gemm ins(%arg1, %arg2 {{.*}}) outs(%[[A]] : {{.*}}) {accumulate}
// CHECK: %[[C:.*]] = piper.gemm ins(%arg2, %arg0 {{.*}}) outs(%[[B]] : {{.*}}) {accumulate}
// CHECK-NOT: linalg.generic
// CHECK: return %[[C]]
func.func @three(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>, %z: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %a = piper.gemm ins(%x, %y : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = piper.gemm ins(%y, %z : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = piper.gemm ins(%z, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %c : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x4xf32>
  %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %b : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %q, %p : f32
    linalg.yield %0 : f32
  } -> tensor<4x4xf32>
  return %t : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @reshaped
// CHECK: piper.gemm {{.*}} {accumulate}
// CHECK: tensor.expand_shape
// CHECK-NOT: linalg.generic
func.func @reshaped(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> tensor<2x2x4xf32> {
  %e = tensor.empty() : tensor<4x4xf32>
  %f = tensor.empty() : tensor<2x2x4xf32>
  %a = piper.gemm ins(%x, %y : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = piper.gemm ins(%y, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = tensor.expand_shape %a [[0, 1], [2]] output_shape [2, 2, 4] : tensor<4x4xf32> into tensor<2x2x4xf32>
  %d = tensor.expand_shape %b [[0, 1], [2]] output_shape [2, 2, 4] : tensor<4x4xf32> into tensor<2x2x4xf32>
  %s = linalg.generic {indexing_maps = [#id3, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%c, %d : tensor<2x2x4xf32>, tensor<2x2x4xf32>) outs(%f : tensor<2x2x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<2x2x4xf32>
  return %s : tensor<2x2x4xf32>
}

// A product that something else reads too stays as it is.
// CHECK-LABEL: func.func @shared
// CHECK-NOT: accumulate
// CHECK: linalg.generic
func.func @shared(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %e = tensor.empty() : tensor<4x4xf32>
  %a = piper.gemm ins(%x, %y : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = piper.gemm ins(%y, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x4xf32>
  return %s, %a : tensor<4x4xf32>, tensor<4x4xf32>
}
