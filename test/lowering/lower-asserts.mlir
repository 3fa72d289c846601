// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-lower-asserts | FileCheck %s

// CHECK-DAG: llvm.mlir.global internal constant @piper.message0("too large\00")
// CHECK-DAG: llvm.func @piper_kernel_fail(!llvm.ptr)
// CHECK: func.func private @piper.report0()
// CHECK: llvm.call @piper_kernel_fail
// CHECK: func.func @check(%[[OK:.*]]: i1)
// CHECK: %[[FAILED:.*]] = arith.xori %[[OK]]
// CHECK: scf.if %[[FAILED]] {
// CHECK-NEXT: call @piper.report0()
func.func @check(%ok: i1) {
  cf.assert %ok, "too large"
  return
}
