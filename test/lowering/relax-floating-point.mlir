// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-relax-floating-point | FileCheck %s

// CHECK-LABEL: func.func @relax
// CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<reassoc,nsz,arcp,contract>
// CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<contract>
// CHECK: arith.maximumf %{{[^ ]*}}, %{{[^ ]*}} : f32
func.func @relax(%x: f32, %y: f32) -> f32 {
  %0 = arith.addf %x, %y : f32
  %1 = arith.mulf %0, %y fastmath<contract> : f32
  %2 = arith.maximumf %0, %1 : f32
  return %2 : f32
}
