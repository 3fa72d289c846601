// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-group-rows | FileCheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>

// One loop over rows; the buffer between the ops shrinks to a row; the sum over rows joins, with its fill in front.
// CHECK-LABEL: func.func @grouped
// CHECK: linalg.fill {{.*}} outs(%arg2 : memref<8xf32>)
// CHECK: %[[ROW:.*]] = memref.alloc() : memref<8xf32>
// CHECK: scf.for %[[I:.*]] = %c0{{.*}} to %c4{{.*}} step
// CHECK: %[[IN:.*]] = memref.subview %arg0[%[[I]], 0] [1, 8] [1, 1] : memref<4x8xf32> to memref<8xf32, strided<[1], offset: ?>>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel"]} ins(%[[IN]] : {{.*}})
// CHECK: %[[TWICE:.*]] = arith.addf
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction"]
// CHECK: linalg.generic {{.*}} outs(%arg2 : memref<8xf32>)
// CHECK-NOT: memref<4x8xf32> to memref<8xf32
// CHECK: return
func.func @grouped(%x: memref<4x8xf32>, %sums: memref<4xf32>, %total: memref<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<4x8xf32>
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x8xf32>) outs(%t : memref<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%t : memref<4x8xf32>) outs(%sums : memref<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  }
  linalg.fill ins(%zero : f32) outs(%total : memref<8xf32>)
  linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%t : memref<4x8xf32>) outs(%total : memref<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  }
  return
}

// The second op reads other rows than the first one wrote: transposed, and a sum that is still growing.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: scf.for
// CHECK: return
func.func @apart(%x: memref<4x4xf32>, %y: memref<4x4xf32>, %z: memref<4x4xf32>) {
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x4xf32>) outs(%y : memref<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, #all], iterator_types = ["parallel", "parallel"]} ins(%y : memref<4x4xf32>) outs(%z : memref<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// The second op's body loads other rows of what the first one writes.
// CHECK-LABEL: func.func @gathered
// CHECK-NOT: scf.for
// CHECK: return
func.func @gathered(%x: memref<4x8xf32>, %y: memref<4x8xf32>, %z: memref<4x8xf32>) {
  %last = arith.constant 3 : index
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x8xf32>) outs(%y : memref<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%z : memref<4x8xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %mirrored = arith.subi %last, %i : index
    %0 = memref.load %y[%mirrored, %j] : memref<4x8xf32>
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @sum_used
// CHECK-NOT: scf.for
// CHECK: return
func.func @sum_used(%x: memref<4x8xf32>, %total: memref<8xf32>, %z: memref<4x8xf32>) {
  linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%x : memref<4x8xf32>) outs(%total : memref<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#column, #all], iterator_types = ["parallel", "parallel"]} ins(%total : memref<8xf32>) outs(%z : memref<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// Rows of a view that is shifted by half a row overlap those of its base.
// CHECK-LABEL: func.func @shifted
// CHECK-NOT: scf.for
// CHECK: return
func.func @shifted(%x: memref<4x8xf32>, %y: memref<40xf32>) {
  %a = memref.reinterpret_cast %y to offset: [0], sizes: [4, 8], strides: [8, 1] : memref<40xf32> to memref<4x8xf32, strided<[8, 1]>>
  %b = memref.reinterpret_cast %y to offset: [4], sizes: [4, 8], strides: [8, 1] : memref<40xf32> to memref<4x8xf32, strided<[8, 1], offset: 4>>
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x8xf32>) outs(%a : memref<4x8xf32, strided<[8, 1]>>) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  }
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%b : memref<4x8xf32, strided<[8, 1], offset: 4>>) outs(%x : memref<4x8xf32>) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  }
  return
}

// CHECK-LABEL: func.func @row_index
// CHECK: scf.for %[[I:.*]] =
// CHECK: arith.index_cast %[[I]]
// CHECK: linalg.index 0
func.func @row_index(%x: memref<4x8xi64>, %y: memref<4x8xi64>) {
  linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%x : memref<4x8xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %0 = arith.index_cast %i : index to i64
    linalg.yield %0 : i64
  }
  linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%x : memref<4x8xi64>) outs(%y : memref<4x8xi64>) {
  ^bb0(%a: i64, %o: i64):
    %i = linalg.index 1 : index
    %0 = arith.index_cast %i : index to i64
    %1 = arith.addi %0, %a : i64
    linalg.yield %1 : i64
  }
  return
}
