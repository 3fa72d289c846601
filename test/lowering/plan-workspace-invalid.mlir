// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -allow-unregistered-dialect -verify-diagnostics --piper-plan-workspace

func.func @dynamic(%n: index) {
  // expected-error @below {{expected an allocation of static size, got 'memref<?xf32>'}}
  %0 = memref.alloc(%n) : memref<?xf32>
  "test.use"(%0) : (memref<?xf32>) -> ()
  return
}
