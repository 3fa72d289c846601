// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-copy-to-generic | FileCheck %s

// CHECK-NOT: memref.copy
// CHECK: linalg.generic {{.*}} ins(%arg0 : memref<2x3xf32, strided<[8, 1]>>) outs(%arg1 : memref<2x3xf32>)
func.func @copy(%x: memref<2x3xf32, strided<[8, 1]>>, %y: memref<2x3xf32>) {
  memref.copy %x, %y : memref<2x3xf32, strided<[8, 1]>> to memref<2x3xf32>
  return
}
