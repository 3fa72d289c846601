// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -verify-diagnostics --piper-hold-bits-of-bfloat16

llvm.func @computed(%x: !llvm.ptr) {
  %0 = llvm.load %x : !llvm.ptr -> bf16
  // expected-error @below {{expected arithmetic on bf16 to be expanded}}
  %1 = llvm.fadd %0, %0 : bf16
  llvm.store %1, %x : bf16, !llvm.ptr
  llvm.return
}
