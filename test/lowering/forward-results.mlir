// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -allow-unregistered-dialect --piper-forward-results | FileCheck %s

// Two results of one buffer: the first takes its place, the second is copied.
// CHECK-LABEL: func.func @twice
// CHECK-NOT: memref.alloc
// CHECK: "test.write"(%arg1)
// CHECK-NEXT: memref.copy %arg1, %arg2
// CHECK-NEXT: return
func.func @twice(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) attributes {piper.inputs = 1 : i64} {
  %0 = memref.alloc() : memref<4xf32>
  "test.write"(%0) : (memref<4xf32>) -> ()
  memref.copy %0, %y : memref<4xf32> to memref<4xf32>
  memref.copy %0, %z : memref<4xf32> to memref<4xf32>
  return
}

// CHECK-LABEL: func.func @reshaped
// CHECK-NOT: memref.alloc
// CHECK: %[[ROWS:.*]] = memref.expand_shape %arg0
// CHECK: "test.write"(%[[ROWS]])
// CHECK-NOT: memref.copy
func.func @reshaped(%y: memref<4xf32>) attributes {piper.inputs = 0 : i64} {
  %0 = memref.alloc() : memref<2x2xf32>
  "test.write"(%0) : (memref<2x2xf32>) -> ()
  %1 = memref.collapse_shape %0 [[0, 1]] : memref<2x2xf32> into memref<4xf32>
  memref.copy %1, %y : memref<4xf32> to memref<4xf32>
  return
}

// An input that is updated in place may be read before the copy.
// CHECK-LABEL: func.func @in_place
// CHECK: memref.alloc
// CHECK: memref.copy
func.func @in_place(%p: memref<4xf32>) attributes {piper.inputs = 1 : i64} {
  %0 = memref.alloc() : memref<4xf32>
  "test.write"(%0) : (memref<4xf32>) -> ()
  memref.copy %0, %p : memref<4xf32> to memref<4xf32>
  return
}
