// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-destination-passing | FileCheck %s

// CHECK-LABEL: func.func @kernel
// CHECK-SAME: (%[[X:.*]]: memref<6xf32>, %[[P:.*]]: memref<4xf32>, %[[Y:.*]]: memref<2x3xf32>, %[[Z:.*]]: memref<6xf32>)
// CHECK-SAME: piper.inputs = 2 : i64, piper.results = 2 : i64
// CHECK: %[[T:.*]] = bufferization.to_tensor %[[X]] restrict :
// The reshape of the result moves to its destination.
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[Y]]
// CHECK: bufferization.materialize_in_destination %{{.*}} in restrict writable %[[FLAT]]
// CHECK: bufferization.materialize_in_destination %[[T]] in restrict writable %[[Z]]
// CHECK: return{{$}}
func.func @kernel(%x: tensor<6xf32>, %p: memref<4xf32>) -> (tensor<2x3xf32>, tensor<6xf32>) {
  %0 = math.absf %x : tensor<6xf32>
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 3] : tensor<6xf32> into tensor<2x3xf32>
  return %1, %x : tensor<2x3xf32>, tensor<6xf32>
}
