// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics --piper-packed-entry

// expected-error @below {{expected a kernel function in the LLVM dialect, got none}}
module {}

// -----

// expected-error @below {{expected pointer arguments, got 'f32'}}
llvm.func @k(%x: f32) attributes {piper.inputs = 1 : i64} { llvm.return }
