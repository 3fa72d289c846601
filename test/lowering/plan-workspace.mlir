// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -allow-unregistered-dialect --piper-plan-workspace | FileCheck %s

// The first and the third buffer are never live together and share their place.
// CHECK: func.func @three(%[[W:.*]]: memref<512xi8>) attributes {piper.workspace_bytes = 512 : i64}
// CHECK-NOT: memref.alloc
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: memref.view %[[W]][%[[ZERO]]][] : memref<512xi8> to memref<64xf32>
// CHECK-DAG: %[[SECOND:.*]] = arith.constant 256 : index
// CHECK-DAG: memref.view %[[W]][%[[SECOND]]][] : memref<512xi8> to memref<64xi8>
// CHECK-NOT: memref.dealloc
func.func @three() {
  %a = memref.alloc() : memref<64xf32>
  "test.use"(%a) : (memref<64xf32>) -> ()
  %b = memref.alloc() : memref<64xi8>
  "test.use"(%a, %b) : (memref<64xf32>, memref<64xi8>) -> ()
  memref.dealloc %a : memref<64xf32>
  %c = memref.alloc() : memref<2x32xf32>
  %d = memref.collapse_shape %c [[0, 1]] : memref<2x32xf32> into memref<64xf32>
  "test.use"(%d, %b) : (memref<64xf32>, memref<64xi8>) -> ()
  %e = memref.alloc() : memref<48xf32>
  "test.use"(%e, %d) : (memref<48xf32>, memref<64xf32>) -> ()
  return
}
