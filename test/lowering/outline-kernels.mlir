// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-outline-kernels | FileCheck %s

// Both nests are one function; the view of the base and the constant are made inside.
// CHECK: func.func private @two.nest0(%{{.*}}: memref<8xf32> {llvm.noalias})
// CHECK-DAG: memref.subview
// CHECK-DAG: arith.constant 1.0
// CHECK: linalg.fill
// CHECK-NOT: @two.nest1
// CHECK: func.func @two
// CHECK: call @two.nest0(%arg0)
// CHECK: call @two.nest0(%arg1)
func.func @two(%x: memref<8xf32>, %y: memref<8xf32>) {
  %one = arith.constant 1.0 : f32
  %0 = memref.subview %x[2] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1], offset: 2>>
  linalg.fill ins(%one : f32) outs(%0 : memref<4xf32, strided<[1], offset: 2>>)
  %1 = memref.subview %y[2] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1], offset: 2>>
  linalg.fill ins(%one : f32) outs(%1 : memref<4xf32, strided<[1], offset: 2>>)
  return
}
