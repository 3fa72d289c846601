// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-widen-booleans | FileCheck %s

// CHECK: memref.global "private" constant @mask : memref<2xi8> = dense<[1, 0]>
memref.global "private" constant @mask : memref<2xi1> = dense<[true, false]>

// CHECK: func.func @both(%[[X:.*]]: memref<4xi8>, %[[I:.*]]: index) -> i1
// CHECK: %[[BYTE:.*]] = memref.load %[[X]][%[[I]]] : memref<4xi8>
// CHECK: %[[BIT:.*]] = arith.trunci %[[BYTE]] : i8 to i1
// CHECK: memref.subview %[[X]][2] [2] [1] : memref<4xi8>
// CHECK: %[[WIDE:.*]] = arith.extui %[[BIT]] : i1 to i8
// CHECK: memref.store %[[WIDE]]
func.func @both(%x: memref<4xi1>, %i: index) -> i1 {
  %0 = memref.load %x[%i] : memref<4xi1>
  %1 = memref.subview %x[2] [2] [1] : memref<4xi1> to memref<2xi1, strided<[1], offset: 2>>
  memref.store %0, %1[%i] : memref<2xi1, strided<[1], offset: 2>>
  return %0 : i1
}
