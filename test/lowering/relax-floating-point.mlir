// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-relax-floating-point | FileCheck %s

// What carries flags keeps them; elsewhere operations stay where they stand.
// CHECK-LABEL: func.func @ordered
// CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<contract>
// CHECK: arith.subf %{{.*}}, %{{.*}} fastmath<contract>
// CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<reassoc>
// CHECK: arith.maximumf %{{[^ ]*}}, %{{[^ ]*}} : f32
func.func @ordered(%x: f32, %y: f32) -> f32 {
  %0 = arith.addf %x, %y : f32
  %1 = arith.subf %0, %y : f32
  %2 = arith.mulf %1, %y fastmath<reassoc> : f32
  %3 = arith.maximumf %0, %2 : f32
  return %3 : f32
}

// What depends on the running sum may be reordered, what goes into it not.
// CHECK-LABEL: func.func @reduction
// CHECK: arith.subf %{{.*}}, %{{.*}} fastmath<contract>
// CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<contract>
// CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<reassoc,nsz,contract>
func.func @reduction(%x: tensor<8xf32>, %m: f32, %out: tensor<f32>) -> tensor<f32> {
  %sum = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<8xf32>) outs(%out : tensor<f32>) {
  ^bb0(%in: f32, %acc: f32):
    %0 = arith.subf %in, %m : f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.addf %acc, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  return %sum : tensor<f32>
}

// An output that is written once is no running value.
// CHECK-LABEL: func.func @elementwise
// CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<contract>
func.func @elementwise(%x: tensor<8xf32>) -> tensor<8xf32> {
  %sum = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%x : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %sum : tensor<8xf32>
}
