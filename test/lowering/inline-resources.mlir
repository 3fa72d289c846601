// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-inline-resources | FileCheck %s

// CHECK-LABEL: func.func @constants
// CHECK-DAG: arith.constant dense<{{\[\[}}1.000000e+00, -2.000000e+00], [0.000000e+00, 5.000000e-01]]> : tensor<2x2xf32>
// CHECK-DAG: arith.constant dense<3.000000e+00> : tensor<2xf64>
// CHECK-DAG: arith.constant dense<[1.000000e+00, -1.000000e+00]> : tensor<2xbf16>
// CHECK-DAG: arith.constant dense<[1.000000e+00, -1.000000e+00]> : tensor<2xf16>
// CHECK-DAG: arith.constant dense<[1, -1]> : tensor<2xi64>
// CHECK-DAG: arith.constant dense<[7, -7]> : tensor<2xi32>
// CHECK-DAG: arith.constant dense<[7, -8]> : tensor<2xi16>
// CHECK-DAG: arith.constant dense<[9, -1]> : tensor<2xi8>
// CHECK-DAG: arith.constant dense<[true, false, true]> : tensor<3xi1>
// CHECK-DAG: arith.constant dense<> : tensor<0x2xf32>
// CHECK-NOT: dense_resource
func.func @constants() -> (tensor<2x2xf32>, tensor<2xf64>, tensor<2xbf16>, tensor<2xf16>, tensor<2xi64>,
                           tensor<2xi32>, tensor<2xi16>, tensor<2xi8>, tensor<3xi1>, tensor<0x2xf32>) {
  %0 = arith.constant dense_resource<single> : tensor<2x2xf32>
  %1 = arith.constant dense_resource<splat> : tensor<2xf64>
  %2 = arith.constant dense_resource<brain> : tensor<2xbf16>
  %3 = arith.constant dense_resource<half> : tensor<2xf16>
  %4 = arith.constant dense_resource<long> : tensor<2xi64>
  %5 = arith.constant dense_resource<int> : tensor<2xi32>
  %6 = arith.constant dense_resource<short> : tensor<2xi16>
  %7 = arith.constant dense_resource<byte> : tensor<2xi8>
  %8 = arith.constant dense_resource<bool> : tensor<3xi1>
  %9 = arith.constant dense_resource<empty> : tensor<0x2xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9 : tensor<2x2xf32>, tensor<2xf64>, tensor<2xbf16>, tensor<2xf16>,
      tensor<2xi64>, tensor<2xi32>, tensor<2xi16>, tensor<2xi8>, tensor<3xi1>, tensor<0x2xf32>
}

{-#
  dialect_resources: {
    builtin: {
      single: "0x040000000000803F000000C0000000000000003F",
      splat: "0x0800000000000000000008400000000000000840",
      brain: "0x02000000803F80BF",
      half: "0x02000000003C00BC",
      long: "0x080000000100000000000000FFFFFFFFFFFFFFFF",
      int: "0x0400000007000000F9FFFFFF",
      short: "0x020000000700F8FF",
      byte: "0x0100000009FF",
      bool: "0x01000000010001",
      empty: "0x04000000"
    }
  }
#-}
