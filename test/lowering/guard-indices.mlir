// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-guard-indices | FileCheck %s

#rows = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>

// The check runs over the rows alone, before the loop nest, whose index from data is clamped; the other is a loop's own.
// CHECK-LABEL: func.func @embedding
// CHECK-SAME: (%[[W:.*]]: tensor<10x4xf32>, %[[I:.*]]: tensor<6xi64>)
// CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step
// CHECK-NEXT: %[[INDEX:.*]] = tensor.extract %[[I]][%[[ROW]]]
// CHECK: %[[OK:.*]] = arith.cmpi slt, %{{.*}}
// CHECK: cf.assert %[[OK]], "too large"
// CHECK: linalg.generic
// CHECK-NOT: cf.assert
// CHECK: %[[COLUMN:.*]] = linalg.index 1
// CHECK: %[[LOW:.*]] = arith.minsi
// CHECK: %[[SAFE:.*]] = arith.maxsi %[[LOW]]
// CHECK: tensor.extract %[[W]][%[[SAFE]], %[[COLUMN]]]
func.func @embedding(%w: tensor<10x4xf32>, %i: tensor<6xi64>) -> tensor<6x4xf32> {
  %c10 = arith.constant 10 : i64
  %0 = tensor.empty() : tensor<6x4xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<6xi64>) outs(%0 : tensor<6x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %ok = arith.cmpi slt, %in, %c10 : i64
    cf.assert %ok, "too large"
    %value = tensor.extract %w[%row, %column] : tensor<10x4xf32>
    linalg.yield %value : f32
  } -> tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}

// No index is at stake: a division by zero is infinite.
// CHECK-LABEL: func.func @reciprocal
// CHECK-NOT: cf.assert
// CHECK: arith.divf
func.func @reciprocal(%x: f32) -> f32 {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %ok = arith.cmpf one, %x, %zero : f32
  cf.assert %ok, "zero"
  %0 = arith.divf %one, %x : f32
  return %0 : f32
}

// Nobody checks this index from data: a check is added, and hoisted to the loop that it depends on.
// CHECK-LABEL: func.func @unchecked
// CHECK-SAME: (%{{.*}}: tensor<10x4xf32>, %[[I:.*]]: tensor<6xi64>)
// CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step
// CHECK: tensor.extract %[[I]][%[[ROW]]]
// CHECK: %[[BELOW:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}} : index
// CHECK-NEXT: cf.assert %[[BELOW]], "index must be smaller than dim size"
// CHECK: %[[ABOVE:.*]] = arith.cmpi sge, %{{.*}}, %{{.*}} : index
// CHECK-NEXT: cf.assert %[[ABOVE]], "index must be larger or equal to 0"
// CHECK: linalg.generic
// CHECK-NOT: cf.assert
func.func @unchecked(%w: tensor<10x4xf32>, %i: tensor<6xi64>) -> tensor<6x4xf32> {
  %0 = tensor.empty() : tensor<6x4xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<6xi64>) outs(%0 : tensor<6x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %value = tensor.extract %w[%row, %column] : tensor<10x4xf32>
    linalg.yield %value : f32
  } -> tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}
