// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-schedule-pipeline --piper-plan-pipeline | FileCheck %s

// 1F1B on four stages, eight microbatches: a stage keeps as many bundles of 6144 bytes as there are stages from it to the last.

// CHECK: piper.plan @class0 ranks [0]
// CHECK: piper.plan.entry "step"
// CHECK-SAME: saved = 24576 : i64
// CHECK: piper.plan @class1 ranks [1]
// CHECK: piper.plan.entry "step"
// CHECK-SAME: saved = 18432 : i64
// CHECK: piper.plan @class2 ranks [2]
// CHECK: piper.plan.entry "step"
// CHECK-SAME: saved = 12288 : i64
// CHECK: piper.plan @class3 ranks [3]
// CHECK: piper.plan.entry "step"
// CHECK-SAME: saved = 6144 : i64

module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["pp", "dp"] [4, 1]
  piper.state @w0 : tensor<16xf32> parameter trainable ["w0"]
  piper.state @v0 : tensor<16xf32> parameter trainable ["v0"]
  piper.state @w1 : tensor<16xf32> parameter trainable ["w1"]
  piper.state @v1 : tensor<16xf32> parameter trainable ["v1"]
  piper.state @w2 : tensor<16xf32> parameter trainable ["w2"]
  piper.state @v2 : tensor<16xf32> parameter trainable ["v2"]
  piper.state @w3 : tensor<16xf32> parameter trainable ["w3"]
  piper.state @v3 : tensor<16xf32> parameter trainable ["v3"]
  piper.optimizer @group0 "adamw" slots ["exp_avg", "exp_avg_sq"] scalars ["step_size", "bias_correction2_sqrt", "eps", "decay"] config {beta1 = 9.0e-1 : f64, beta2 = 9.99e-1 : f64, amsgrad = false, maximize = false}
  piper.chunk @c0_F F operands [1, 1, 1] results [1, 3] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>)
  piper.chunk @c0_B B operands [3, 1, 1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_B_rows2(tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>)
  piper.chunk @c1_F F operands [1, 1, 1] results [1, 3] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c1_F_rows2(tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>)
  piper.chunk @c1_B B operands [3, 1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  func.func private @c1_B_rows2(tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>)
  piper.chunk @c2_F F operands [1, 1, 1] results [1, 3] [{binding = {rows = 2 : i64}, function = @c2_F_rows2}]
  func.func private @c2_F_rows2(tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>)
  piper.chunk @c2_B B operands [3, 1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c2_B_rows2}]
  func.func private @c2_B_rows2(tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>)
  piper.chunk @c3_F F operands [1, 1, 1, 1] results [1, 1, 3] [{binding = {rows = 2 : i64}, function = @c3_F_rows2}]
  func.func private @c3_F_rows2(tensor<2x256xf32>, tensor<2xi64>, tensor<16xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>)
  piper.chunk @c3_B B operands [3, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c3_B_rows2}]
  func.func private @c3_B_rows2(tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<2x256xf32>, tensor<16xf32>, tensor<16xf32>)
  piper.graph @step rows 16 {
    %x = piper.input "args.0" 0 split : tensor<?x256xf32>
    %t = piper.input "target" 1 split : tensor<?xi64>
    %w0 = piper.read @w0 : tensor<16xf32>
    %v0 = piper.read @v0 : tensor<16xf32>
    %w1 = piper.read @w1 : tensor<16xf32>
    %v1 = piper.read @v1 : tensor<16xf32>
    %w2 = piper.read @w2 : tensor<16xf32>
    %v2 = piper.read @v2 : tensor<16xf32>
    %w3 = piper.read @w3 : tensor<16xf32>
    %v3 = piper.read @v3 : tensor<16xf32>
    %y0, %s0, %k1 = piper.compute @c0_F(%x, %w0, %v0) F {stage = 0 : i64} : (tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x256xf32>, !piper.bundle)
    %y1, %s1, %k2 = piper.compute @c1_F(%y0, %w1, %v1) F {stage = 1 : i64} : (tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x256xf32>, !piper.bundle)
    %y2, %s2, %k3 = piper.compute @c2_F(%y1, %w2, %v2) F {stage = 2 : i64} : (tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x256xf32>, !piper.bundle)
    %loss, %weight, %s3, %k4 = piper.compute @c3_F(%y2, %t, %w3, %v3) F {stage = 3 : i64} : (tensor<?x256xf32>, tensor<?xi64>, tensor<16xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %d3, %gw3, %gv3, %k5 = piper.compute @c3_B(%s3, %w3, %v3) B {stage = 3 : i64} : (!piper.bundle, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>)
    %d2, %gw2, %gv2, %k6 = piper.compute @c2_B(%s2, %d3, %w2, %v2) B {stage = 2 : i64} : (!piper.bundle, tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>)
    %d1, %gw1, %gv1, %k7 = piper.compute @c1_B(%s1, %d2, %w1, %v1) B {stage = 1 : i64} : (!piper.bundle, tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>)
    %gw0, %gv0, %k8 = piper.compute @c0_B(%s0, %d1, %w0, %v0) B {stage = 0 : i64} : (!piper.bundle, tensor<?x256xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>)
    %aw0, %k10 = piper.accumulate @w0 (%gw0) : tensor<16xf32> -> tensor<16xf32>
    %k11 = piper.update @w0 (%aw0) optimizer @group0 : tensor<16xf32>
    %av0, %k12 = piper.accumulate @v0 (%gv0) : tensor<16xf32> -> tensor<16xf32>
    %k13 = piper.update @v0 (%av0) optimizer @group0 : tensor<16xf32>
    %aw1, %k14 = piper.accumulate @w1 (%gw1) : tensor<16xf32> -> tensor<16xf32>
    %k15 = piper.update @w1 (%aw1) optimizer @group0 : tensor<16xf32>
    %av1, %k16 = piper.accumulate @v1 (%gv1) : tensor<16xf32> -> tensor<16xf32>
    %k17 = piper.update @v1 (%av1) optimizer @group0 : tensor<16xf32>
    %aw2, %k18 = piper.accumulate @w2 (%gw2) : tensor<16xf32> -> tensor<16xf32>
    %k19 = piper.update @w2 (%aw2) optimizer @group0 : tensor<16xf32>
    %av2, %k20 = piper.accumulate @v2 (%gv2) : tensor<16xf32> -> tensor<16xf32>
    %k21 = piper.update @v2 (%av2) optimizer @group0 : tensor<16xf32>
    %aw3, %k22 = piper.accumulate @w3 (%gw3) : tensor<16xf32> -> tensor<16xf32>
    %k23 = piper.update @w3 (%aw3) optimizer @group0 : tensor<16xf32>
    %av3, %k24 = piper.accumulate @v3 (%gv3) : tensor<16xf32> -> tensor<16xf32>
    %k25 = piper.update @v3 (%av3) optimizer @group0 : tensor<16xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 8
    piper.place {stage = 0 : i64} on [0] stream "pp_stream"
    piper.place {stage = 1 : i64} on [1] stream "pp_stream"
    piper.place {stage = 2 : i64} on [2] stream "pp_stream"
    piper.place {stage = 3 : i64} on [3] stream "pp_stream"
    piper.order [[{stage = 0 : i64, MB = 0 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 2 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 3 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 0 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 4 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 5 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 2 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 6 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 3 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 7 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 4 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 5 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 6 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 7 : i64, PASS = "B"}]]
    piper.order [[{stage = 1 : i64, MB = 0 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 2 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 0 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 3 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 4 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 2 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 5 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 3 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 6 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 4 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 7 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 5 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 6 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 7 : i64, PASS = "B"}]]
    piper.order [[{stage = 2 : i64, MB = 0 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 0 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 2 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 3 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 2 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 4 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 3 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 5 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 4 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 6 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 5 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 7 : i64, PASS = "F"}], [{stage = 2 : i64, MB = 6 : i64, PASS = "B"}], [{stage = 2 : i64, MB = 7 : i64, PASS = "B"}]]
    piper.order [[{stage = 3 : i64, MB = 0 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 0 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 2 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 2 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 3 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 3 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 4 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 4 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 5 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 5 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 6 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 6 : i64, PASS = "B"}], [{stage = 3 : i64, MB = 7 : i64, PASS = "F"}], [{stage = 3 : i64, MB = 7 : i64, PASS = "B"}]]
  }
}
