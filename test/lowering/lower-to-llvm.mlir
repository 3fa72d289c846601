// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-lower-to-llvm | FileCheck %s

// A product, its bias and its activation: one call, one loop nest, no workspace but the product's.
// CHECK: llvm.func @piper_sgemm
// CHECK: llvm.func internal @layer.nest0
// CHECK-NOT: @layer.nest1
// CHECK: llvm.func @layer(%{{.*}}: !llvm.ptr) attributes {{{.*}}piper.inputs = 3 : i64, piper.results = 1 : i64, piper.workspace_bytes = 64 : i64}
// CHECK: llvm.func internal @layer.body
// CHECK: llvm.call @piper_sgemm
// CHECK: llvm.call @layer.nest0
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @layer(%x: tensor<2x3xf32>, %w: tensor<3x5xf32>, %b: tensor<5xf32>) -> tensor<2x5xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.empty() : tensor<2x5xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<2x5xf32>) -> tensor<2x5xf32>
  %2 = linalg.matmul ins(%x, %w : tensor<2x3xf32>, tensor<3x5xf32>) outs(%1 : tensor<2x5xf32>) -> tensor<2x5xf32>
  %3 = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%2, %b : tensor<2x5xf32>, tensor<5xf32>) outs(%0 : tensor<2x5xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<2x5xf32>
  %4 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%3 : tensor<2x5xf32>) outs(%0 : tensor<2x5xf32>) {
  ^bb0(%p: f32, %out: f32):
    %s = arith.maximumf %p, %zero : f32
    linalg.yield %s : f32
  } -> tensor<2x5xf32>
  return %4 : tensor<2x5xf32>
}
