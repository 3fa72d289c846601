// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-update-in-place -split-input-file | FileCheck %s
// RUN: piper-opt %s --piper-lower-to-llvm -split-input-file -o /dev/null

#id = affine_map<(d0) -> (d0)>

// A donated argument is overwritten where it is read last; another one is not.
// CHECK-LABEL: func.func @donated(
// CHECK-SAME: %[[X:.*]]: tensor<8xf32> {piper.donated}, %[[Y:.*]]: tensor<8xf32>, %[[M:.*]]: tensor<8x8xf32>
func.func @donated(%x: tensor<8xf32> {piper.donated}, %y: tensor<8xf32>, %m: tensor<8x8xf32>) -> (tensor<8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  // The first op is not the last to read %x.
  // CHECK: linalg.generic {{.*}} ins(%[[X]], %[[Y]] :
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  // CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<8xf32>) outs(%[[X]] : tensor<8xf32>)
  // CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[O:.*]]: f32):
  // CHECK-NEXT: arith.mulf %[[A]], %[[O]]
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%0, %x : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  %row = tensor.expand_shape %1 [[0, 1]] output_shape [1, 8] : tensor<8xf32> into tensor<1x8xf32>
  %pe = tensor.empty() : tensor<1x8xf32>
  // CHECK: %[[P:.*]] = piper.gemm
  %p = piper.gemm ins(%row, %m : tensor<1x8xf32>, tensor<8x8xf32>) outs(%pe : tensor<1x8xf32>) -> tensor<1x8xf32>
  // The memory of a product is reached through a reshape.
  // CHECK: %[[Q:.*]] = tensor.collapse_shape %[[P]]
  %q = tensor.collapse_shape %p [[0, 1]] : tensor<1x8xf32> into tensor<8xf32>
  // CHECK: linalg.generic {{.*}} outs(%[[Q]] : tensor<8xf32>)
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%q : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.negf %a : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  %row2 = tensor.expand_shape %2 [[0, 1]] output_shape [1, 8] : tensor<8xf32> into tensor<1x8xf32>
  %me = tensor.empty() : tensor<8x8xf32>
  %g = piper.gemm ins(%row2, %row : tensor<1x8xf32>, tensor<1x8xf32>) outs(%me : tensor<8x8xf32>) {transpose_lhs} -> tensor<8x8xf32>
  // A result has a place of its own.
  // CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<8xf32>) outs(%{{.*}} : tensor<8xf32>)
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%2 : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.negf %a : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %3, %g : tensor<8xf32>, tensor<8x8xf32>
}
