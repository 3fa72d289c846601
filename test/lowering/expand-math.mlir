// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-expand-math | FileCheck %s

// CHECK-LABEL: func.func @exp
// CHECK-NOT: math.exp
// CHECK: arith.cmpf olt
// CHECK: arith.bitcast
// CHECK: arith.shrsi
// CHECK: arith.mulf {{.*}} fastmath<contract>
func.func @exp(%x: f32) -> f32 {
  %0 = math.exp %x : f32
  return %0 : f32
}

// CHECK-LABEL: func.func @tanh_erf
// CHECK-NOT: math.{{tanh|erf|exp }}
// CHECK-COUNT-2: math.copysign
func.func @tanh_erf(%x: f32) -> (f32, f32) {
  %0 = math.tanh %x : f32
  %1 = math.erf %x : f32
  return %0, %1 : f32, f32
}

// CHECK-LABEL: func.func @powers
// CHECK-NOT: math.{{fpowi|powf}}
// CHECK: %[[SQUARE:.*]] = arith.mulf %arg0, %arg0
// CHECK: arith.mulf %arg0, %[[SQUARE]]
// CHECK: math.sqrt
func.func @powers(%x: f32) -> (f32, f32) {
  %c3 = arith.constant 3 : i64
  %half = arith.constant 0.5 : f32
  %0 = math.fpowi %x, %c3 : f32, i64
  %1 = math.powf %x, %half : f32
  return %0, %1 : f32, f32
}

// Double precision is left to libm, and so is a power that is no small integer.
// CHECK-LABEL: func.func @left
// CHECK: math.exp %arg0 : f64
// CHECK: math.powf
func.func @left(%x: f64, %y: f32) -> (f64, f32) {
  %c = arith.constant 2.5 : f32
  %0 = math.exp %x : f64
  %1 = math.powf %y, %c : f32
  return %0, %1 : f64, f32
}
