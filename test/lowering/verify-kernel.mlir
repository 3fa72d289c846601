// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-verify-kernel | FileCheck %s

// CHECK: func.func @kernel
func.func @kernel(%x: tensor<2xi1>, %y: memref<3x4xbf16>, %z: tensor<f64>) -> tensor<2xi1> {
  return %x : tensor<2xi1>
}
