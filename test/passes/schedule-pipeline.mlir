// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-schedule-pipeline -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: grep "on \[0, 1\] stream @compute functions" %t.mlir | FileCheck %s --check-prefix=ZERO
// RUN: grep "on \[2, 3\] stream @compute functions" %t.mlir | FileCheck %s --check-prefix=ONE
// Directives apply in a fixed order, whatever order they are written in.
// RUN: awk '/piper.order|piper.split/ {held = held $0 "\n"; next} /piper.strategy/ {inside = 1} inside && /^  }/ {printf "%%s", held; inside = 0} {print}' %s | piper-opt --piper-schedule-pipeline | diff - %t.mlir
// The scheduled phase is a file like any other.
// RUN: piper-opt %t.mlir --piper-verify-scheduled | diff - %t.mlir

// GPipe on two stages of two replicas, ZeRO-1.

// CHECK: module attributes {piper.phase = "scheduled"}
// CHECK-NOT: piper.strategy
// CHECK: functions [@c0_F_rows2] [0, 0]
// ZERO: {{.*}}@c0_F({{.*}} {MB = 0 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_F({{.*}} {MB = 1 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_F({{.*}} {MB = 2 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_F({{.*}} {MB = 3 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 0 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 1 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 2 : i64, stage = 0 : i64}
// ZERO-NEXT: {{.*}}@c0_B({{.*}} {MB = 3 : i64, stage = 0 : i64}

// ONE: {{.*}}@c1_F({{.*}} {MB = 0 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_F({{.*}} {MB = 1 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_F({{.*}} {MB = 2 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_F({{.*}} {MB = 3 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 0 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 1 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 2 : i64, stage = 1 : i64}
// ONE-NEXT: {{.*}}@c1_B({{.*}} {MB = 3 : i64, stage = 1 : i64}

module attributes {piper.phase = "imported"} {
  piper.mesh @mesh ["pp", "dp"] [2, 2]
  piper.state @a : tensor<16xf32> parameter trainable ["a"]
  piper.state @b : tensor<16xf32> parameter trainable ["b"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.chunk @c0_F F operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @c0_B B operands [1, 1, 1] results [1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  func.func private @c1_F_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x4xf32>)
  func.func private @c1_B_rows2(tensor<2x4xf32>, tensor<16xf32>) -> (tensor<2x4xf32>, tensor<16xf32>)
  func.func private @c0_B_rows2(tensor<2x4xf32>, tensor<2x4xf32>, tensor<16xf32>) -> tensor<16xf32>
  piper.graph @step rows 16 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %a = piper.read @a : tensor<16xf32>
    %b = piper.read @b : tensor<16xf32>
    %y, %s0, %t0 = piper.compute @c0_F(%x, %a) F {stage = 0 : i64} : (tensor<?x4xf32>, tensor<16xf32>) -> (tensor<?x4xf32>, !piper.bundle)
    %loss, %weight, %s1, %t1 = piper.compute @c1_F(%y, %b) F {stage = 1 : i64} : (tensor<?x4xf32>, tensor<16xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dy, %gb, %t2 = piper.compute @c1_B(%s1, %b) B {stage = 1 : i64} : (!piper.bundle, tensor<16xf32>) -> (tensor<?x4xf32>, tensor<16xf32>)
    %ga, %t3 = piper.compute @c0_B(%s0, %dy, %a) B {stage = 0 : i64} : (!piper.bundle, tensor<?x4xf32>, tensor<16xf32>) -> tensor<16xf32>
    %suma, %t4 = piper.accumulate @a (%ga) : tensor<16xf32> -> tensor<16xf32>
    %sumb, %t5 = piper.accumulate @b (%gb) : tensor<16xf32> -> tensor<16xf32>
    %t6 = piper.update @a (%suma) optimizer @group0 : tensor<16xf32>
    %t7 = piper.update @b (%sumb) optimizer @group0 : tensor<16xf32>
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    piper.split {} "MB" into 4
    piper.place {stage = 0 : i64} on [0, 1] stream "pp_stream"
    piper.place {stage = 1 : i64} on [2, 3] stream "pp_stream"
    piper.replicate {stage = 0 : i64} on [0, 1] {shard_optimizer}
    piper.replicate {stage = 1 : i64} on [2, 3] {shard_optimizer}
    piper.order [[{stage = 0 : i64, MB = 0 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 2 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 3 : i64, PASS = "F"}], [{stage = 0 : i64, MB = 0 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 2 : i64, PASS = "B"}], [{stage = 0 : i64, MB = 3 : i64, PASS = "B"}]]
    piper.order [[{stage = 1 : i64, MB = 0 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 1 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 2 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 3 : i64, PASS = "F"}], [{stage = 1 : i64, MB = 0 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 1 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 2 : i64, PASS = "B"}], [{stage = 1 : i64, MB = 3 : i64, PASS = "B"}]]
  }
}
