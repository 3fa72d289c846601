// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -allow-unregistered-dialect --piper-plan-workspace | FileCheck %s

// Buffers that are never live together share their place.
// CHECK: func.func @three(%[[W:.*]]: memref<448xi8>) attributes {piper.workspace_bytes = 448 : i64}
// CHECK: memref.view %[[W]][%c0{{.*}}][] : memref<448xi8> to memref<64xf32>
// CHECK: memref.view %[[W]][%c256{{.*}}][] : memref<448xi8> to memref<64xi8>
// CHECK-NOT: memref.dealloc
// CHECK: memref.view %[[W]][%c0{{.*}}][] : memref<448xi8> to memref<2x32xf32>
// CHECK: memref.view %[[W]][%c256{{.*}}][] : memref<448xi8> to memref<48xf32>
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
