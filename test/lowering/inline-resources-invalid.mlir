// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-inline-resources -split-input-file -verify-diagnostics

func.func @missing() -> tensor<2xf32> {
  // expected-error @below {{expected the data of resource 'elsewhere' to fill 'tensor<2xf32>', got none}}
  %0 = arith.constant dense_resource<elsewhere> : tensor<2xf32>
  return %0 : tensor<2xf32>
}
