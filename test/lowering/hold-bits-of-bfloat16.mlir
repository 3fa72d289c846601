// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-hold-bits-of-bfloat16 | FileCheck %s
// RUN: piper-opt %s --piper-hold-bits-of-bfloat16 | FileCheck %s --check-prefix=NONE

// NONE-NOT: : bf16

// CHECK-LABEL: llvm.func @moved(
// CHECK-SAME: %[[X:.*]]: !llvm.ptr, %[[Y:.*]]: i16, %[[B:.*]]: i1) -> i16
// CHECK: %[[ONE:.*]] = llvm.mlir.constant(16256 : i16) : i16
// CHECK: %[[L:.*]] = llvm.load %[[X]] : !llvm.ptr -> i16
// CHECK: llvm.zext %[[L]] : i16 to i32
// CHECK: %[[S:.*]] = llvm.select %[[B]], %[[L]], %[[ONE]] : i1, i16
// CHECK: llvm.br ^bb1(%[[S]] : i16)
// CHECK: ^bb1(%[[A:.*]]: i16)
// CHECK: llvm.store %[[A]], %[[X]] : i16, !llvm.ptr
// CHECK: llvm.return %[[Y]] : i16
llvm.func @moved(%x: !llvm.ptr, %y: bf16, %b: i1) -> bf16 {
  %one = llvm.mlir.constant(1.0 : bf16) : bf16
  %0 = llvm.load %x : !llvm.ptr -> bf16
  %1 = llvm.bitcast %0 : bf16 to i16
  %2 = llvm.zext %1 : i16 to i32
  %3 = llvm.select %b, %0, %one : i1, bf16
  llvm.br ^bb1(%3 : bf16)
^bb1(%4: bf16):
  llvm.store %4, %x : bf16, !llvm.ptr
  llvm.return %y : bf16
}

// CHECK-LABEL: llvm.func @half
// CHECK: llvm.fadd %{{.*}}, %{{.*}} : f16
llvm.func @half(%x: f16) -> f16 {
  %0 = llvm.fadd %x, %x : f16
  llvm.return %0 : f16
}
