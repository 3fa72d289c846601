// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-expand-conversions | FileCheck %s

// CHECK-LABEL: func.func @convert
// CHECK-NOT: arith.truncf
// CHECK-NOT: arith.extf %{{.*}} : bf16
// CHECK: arith.extf %{{.*}} : f16 to f32
func.func @convert(%x: f32, %y: bf16, %z: f16) -> (bf16, f32, f32) {
  %0 = arith.truncf %x : f32 to bf16
  %1 = arith.extf %y : bf16 to f32
  %2 = arith.extf %z : f16 to f32
  return %0, %1, %2 : bf16, f32, f32
}
