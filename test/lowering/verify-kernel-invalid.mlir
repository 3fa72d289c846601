// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics --piper-verify-kernel

// expected-error @below {{expected one public function, got none}}
module {}

// -----

// expected-error @below {{expected argument 0 to have a static shape, got 'tensor<?xf32>'}}
func.func @dynamic(%x: tensor<?xf32>) { return }

// -----

// expected-error @below {{expected argument 0 to be a ranked tensor or a memref, got 'f32'}}
func.func @scalar(%x: f32) { return }

// -----

// expected-error @below {{expected result 0 of f32, f64, bf16, f16, i64, i32, i16, i8 or i1, got 'tensor<2xi7>'}}
func.func @element(%x: tensor<2xf32>) -> tensor<2xi7> {
  %0 = tensor.empty() : tensor<2xi7>
  return %0 : tensor<2xi7>
}

// -----

// expected-error @below {{expected argument 0 to be dense}}
func.func @strided(%x: memref<2xf32, strided<[2]>>) { return }

// -----

// expected-error @below {{expected a function of one block, got 2}}
func.func @blocks() {
  cf.br ^bb1
^bb1:
  return
}

// -----

// expected-note @below {{the kernel is 'one'}}
func.func @one() { return }
// expected-error @below {{expected one function, got another one}}
func.func @two() { return }
