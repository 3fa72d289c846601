// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: not piper-opt %s --piper-hold-bits-of-bfloat16 2>&1 | FileCheck %s

llvm.func @computed(%x: !llvm.ptr) {
  %0 = llvm.load %x : !llvm.ptr -> bf16
  // CHECK: error: 'llvm.fadd' op expected arithmetic on bf16 to be expanded
  %1 = llvm.fadd %0, %0 : bf16
  llvm.store %1, %x : bf16, !llvm.ptr
  llvm.return
}
