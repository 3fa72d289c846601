// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What piper-opt tells of its passes: counts, times, the program in between.
// RUN: piper-opt %s --piper-split --piper-place --mlir-pass-statistics -o /dev/null 2>&1 | FileCheck %s --check-prefix=COUNTS
// RUN: piper-opt %s --piper-split --piper-place --mlir-timing -o /dev/null 2>&1 | FileCheck %s --check-prefix=TIMES
// RUN: piper-opt %s --piper-split --piper-place --mlir-print-ir-after-all -o /dev/null 2>&1 | FileCheck %s --check-prefix=PROGRAM

// COUNTS: Split
// COUNTS-NEXT: (S) 6 compute-nodes
// COUNTS: Place
// COUNTS-NEXT: (S) 3 transfers

// TIMES-DAG: Split
// TIMES-DAG: Place

// PROGRAM: IR Dump After {{.*}}Split
// PROGRAM-NOT: piper.send
// PROGRAM: IR Dump After {{.*}}Place
// PROGRAM: piper.send

module {
  piper.mesh @mesh ["pp"] [2]
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 6 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c1_F(%y) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 3
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 1 : i64} on [1] stream "pp_stream"
  }
}
