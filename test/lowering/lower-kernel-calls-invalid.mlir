// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics --piper-lower-kernel-calls

func.func @tensors(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // expected-error @below {{expected memref operands, got 'tensor<2x3xf32>'}}
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, 3, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

func.func @columns(%a: memref<2x3xf32, strided<[1, 2]>>, %b: memref<3x5xf32>, %c: memref<2x5xf32>) {
  // expected-error @below {{expected operands with constant row strides, got 'memref<2x3xf32, strided<[1, 2]>>'}}
  piper.gemm ins(%a, %b : memref<2x3xf32, strided<[1, 2]>>, memref<3x5xf32>) outs(%c : memref<2x5xf32>)
  return
}
