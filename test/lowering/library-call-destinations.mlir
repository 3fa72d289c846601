// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-library-call-destinations | FileCheck %s

// CHECK: %[[OUT:.*]] = tensor.empty() : tensor<2x3xf32>
// CHECK: piper.library_call "cumsum"(%arg0) outs(%[[OUT]] : tensor<2x3xf32>)
func.func @cumsum(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, 3, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
