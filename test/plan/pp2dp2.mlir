// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-partition | FileCheck %s
// RUN: piper-opt %s --piper-partition --verify-roundtrip -o /dev/null
// RUN: piper-opt %s --piper-plan-pipeline | FileCheck %s --check-prefix=PLANNED
// RUN: piper-opt %s --piper-plan-pipeline --piper-export-plan=output=%t.first -o /dev/null
// RUN: echo 'module {}' | piper-opt --piper-import-plan=input=%t.first --piper-verify-planned --piper-export-plan=output=%t.second -o /dev/null
// RUN: cmp %t.first %t.second
// RUN: piper-opt %s --piper-plan-pipeline --piper-export-plan=output=%t.again -o /dev/null
// RUN: cmp %t.first %t.again

// Two stages on two replicas each, two microbatches, ZeRO-1.

// Moments and reduced gradients are sharded, parameters and sums of contributions are not.
// CHECK-DAG: piper.plan.state "w0" parameter : tensor<8x8xf32> [#piper.segment<@class0 state at 64 element 0 count 64>]
// CHECK-DAG: piper.plan.state "w0:grad" gradient : tensor<8x8xf32> [#piper.segment<@class0 state at 576 element 0 count 32 by @[[FIRST:group.[0-9]+]] stride 32>]
// CHECK-DAG: piper.plan.state "w1:momentum_buffer" moment : tensor<8x8xf32> [#piper.segment<@class1 state at 704 element 0 count 32 by @[[SECOND:group.[0-9]+]] stride 32>]
// CHECK-DAG: piper.plan.input "args.0" : f32 rows 8 row_bytes 32
// CHECK-DAG: piper.plan.scalar "group0.first_step" : f32 at 4
// CHECK-DAG: piper.plan.communicator @[[DOWN:.*]] {{\[}}[0, 2], [1, 3]]
// CHECK-DAG: piper.plan.communicator @[[UP:.*]] {{\[}}[2, 0], [3, 1]]
// CHECK-DAG: piper.plan.kernel "c0_F_rows2" [64, 256, 64, 64, 3] "rrwww"
// CHECK-DAG: piper.plan.kernel "update_sgd_group0_32" [128, 128, 128, 8, 8] "xrxrr"
// CHECK-DAG: piper.plan.output "weight_sum" : tensor<f32> of @class1 scalar[68]

// CHECK-LABEL: piper.plan @class0 ranks [0, 1]
// CHECK: piper.plan.stream @pp_stream cores 2
// The rows of replica p begin at row 4 p, those of microbatch 1 two rows further.
// CHECK: piper.plan.launch "c0_F_rows2" (input 0[0 + @[[FIRST]] * 128], state[64], buffer [[Y0:[0-9]+]][0], buffer [[S0:[0-9]+]][0], buffer [[S0]][64]) on @compute label "F MB=0 stage=0"
// CHECK-NEXT: piper.plan.send buffer [[Y0]][0] bytes 64 through @[[DOWN]] on @pp_stream label "send F MB=0 stage=0"
// CHECK: piper.plan.launch "c0_F_rows2" (input 0[64 + @[[FIRST]] * 128]
// CHECK: piper.plan.recv buffer [[R0:[0-9]+]][0] bytes 64 through @[[UP]]
// A gradient goes straight into the sum if the run starts afresh; else it is added to what is there.
// CHECK: piper.plan.launch "c0_B_rows2" (buffer [[S0]][0], buffer [[S0]][64], buffer [[R0]][0], state[320]) on @compute when "fresh"
// CHECK-NEXT: piper.plan.launch "c0_B_rows2" (buffer [[S0]][0], buffer [[S0]][64], buffer [[R0]][0], buffer [[G0:[0-9]+]][0]) on @compute when "!fresh"
// CHECK-NEXT: piper.plan.accumulate "add" state[320], buffer [[G0]][0] : f32 count 64 on @compute when "!fresh"
// CHECK: piper.plan.launch "c0_B_rows2" ({{.*}}, buffer [[G1:[0-9]+]][0]) on @compute label
// CHECK-NEXT: piper.plan.accumulate "add" state[320], buffer [[G1]][0] : f32 count 64 on @compute label
// CHECK: piper.plan.reduce_scatter sum state[320] to state[576] : f32 count 32 {{.*}} when "reduce"
// A rank without loss adds zero to it.
// CHECK-NEXT: piper.plan.fill_zero scalar[64] bytes 8
// CHECK-NEXT: piper.plan.all_reduce sum scalar[64] to scalar[64] : f32 count 2
// CHECK-NEXT: piper.plan.accumulate "fresh" state[0], scalar[64] : f32 count 2
// CHECK-NEXT: piper.plan.launch "update_sgd_group0_32" (state[64 + @[[FIRST]] * 128], state[576], state[704], scalar[0], state[0]) on @compute when "update"
// Updated parameters are gathered where they lie.
// CHECK-NEXT: piper.plan.all_gather state[64 + @[[FIRST]] * 128] to state[64] : f32 count 32 {{.*}} when "update"
// CHECK-NOT: piper.plan.copy

// CHECK-LABEL: piper.plan @class1 ranks [2, 3]
// The first loss is written where the sum is kept, the second added.
// CHECK: piper.plan.launch "c1_F_rows2" ({{.*}}, scalar[64], scalar[68], buffer
// CHECK: piper.plan.launch "c1_F_rows2"
// CHECK-NEXT: piper.plan.accumulate "add" scalar[64]
// CHECK-NEXT: piper.plan.accumulate "add" scalar[68]
// CHECK-NOT: fill_zero
// CHECK-NOT: piper.graph

// PLANNED: piper.phase = "planned"
// PLANNED: func.func @update_sgd_group0_32
// PLANNED-LABEL: piper.plan @class0
// PLANNED: piper.plan.launch "c0_F_rows2" {{.*}} label "F MB=0 stage=0"
// PLANNED-NEXT: piper.plan.record [[E:[0-9]+]] on @compute
// PLANNED-NEXT: piper.plan.wait [[E]] on @pp_stream
// PLANNED-NEXT: piper.plan.send arena[0] bytes 64
// What was sent makes place once that is acknowledged.
// PLANNED: piper.plan.release 0 of
// PLANNED-NOT: buffer {{[0-9]+}}[

module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["pp", "dp"] [2, 2]
  piper.stream @compute
  piper.stream @pp_stream {sms = 2 : i64}
  piper.stream @dp_stream
  piper.state @w0 : tensor<8x8xf32> parameter trainable ["w0"]
  piper.state @w1 : tensor<8x8xf32> parameter trainable ["w1"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr", "first_step"] config {momentum = 9.0e-1 : f64}
  piper.bucket @bucket0 [@w0] offsets [0] elements 64 padded 64 ranks [0, 1] optimizer @group0 {shard_optimizer}
  piper.bucket @bucket1 [@w1] offsets [0] elements 64 padded 64 ranks [2, 3] optimizer @group0 {shard_optimizer}
  piper.chunk @c0_F F operands [1, 1] results [1, 2] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1, 1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  piper.chunk @c1_B B operands [1, 1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_B_rows2}]
  piper.chunk @c0_B B operands [2, 1] results [1] [{binding = {rows = 2 : i64}, function = @c0_B_rows2}]
  func.func private @c0_F_rows2(tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<3xi1>)
  func.func private @c1_F_rows2(tensor<2x8xf32>, tensor<2xi64>, tensor<8x8xf32>) -> (tensor<f32>, tensor<f32>, tensor<2x8xf32>)
  func.func private @c1_B_rows2(tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
  func.func private @c0_B_rows2(tensor<2x8xf32>, tensor<3xi1>, tensor<2x8xf32>) -> tensor<8x8xf32>
  piper.graph @step rows 8 {
    %x0 = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x8xf32>
    %x1 = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x8xf32>
    %t0 = piper.input "target" 1 split microbatch 0 of 2 : tensor<?xi64>
    %t1 = piper.input "target" 1 split microbatch 1 of 2 : tensor<?xi64>
    %b0 = piper.read @bucket0 : tensor<64xf32>
    %b1 = piper.read @bucket1 : tensor<64xf32>
    %w0 = piper.unpack @bucket0 @w0 %b0 : tensor<64xf32> -> tensor<8x8xf32>
    %w1 = piper.unpack @bucket1 @w1 %b1 : tensor<64xf32> -> tensor<8x8xf32>
    // Warm-up: two microbatches on the first stage, one on the last.
    %y0, %s0, %k0 = piper.compute @c0_F(%x0, %w0) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0, 1] stream @compute functions [@c0_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<8x8xf32>) -> (tensor<?x8xf32>, !piper.bundle)
    %m0, %k1 = piper.send %y0 on [0, 1] to [2, 3] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %r0, %k2 = piper.recv %m0 on [2, 3] from [0, 1] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %y1, %s1, %k3 = piper.compute @c0_F(%x1, %w0) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0, 1] stream @compute functions [@c0_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<8x8xf32>) -> (tensor<?x8xf32>, !piper.bundle)
    %m1, %k4 = piper.send %y1 on [0, 1] to [2, 3] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %r1, %k9 = piper.recv %m1 on [2, 3] from [0, 1] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %l0, %n0, %s2, %k5 = piper.compute @c1_F(%r0, %t0, %w1) F {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [2, 3] stream @compute functions [@c1_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<?xi64>, tensor<8x8xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dx0, %dw10, %k6 = piper.compute @c1_B(%s2, %w1) B {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [2, 3] stream @compute functions [@c1_B_rows2] [0, 0]
        : (!piper.bundle, tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<8x8xf32>)
    %m2, %k7 = piper.send %dx0 on [2, 3] to [0, 1] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %r2, %k8 = piper.recv %m2 on [0, 1] from [2, 3] stream @pp_stream microbatch 0 of 2 : tensor<?x8xf32>
    %dw00, %k10 = piper.compute @c0_B(%s0, %r2) B {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0, 1] stream @compute functions [@c0_B_rows2] [0, 0]
        : (!piper.bundle, tensor<?x8xf32>) -> tensor<8x8xf32>
    %l1, %n1, %s3, %k11 = piper.compute @c1_F(%r1, %t1, %w1) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [2, 3] stream @compute functions [@c1_F_rows2] [0, 0]
        : (tensor<?x8xf32>, tensor<?xi64>, tensor<8x8xf32>) -> (tensor<f32>, tensor<f32>, !piper.bundle)
    %dx1, %dw11, %k12 = piper.compute @c1_B(%s3, %w1) B {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [2, 3] stream @compute functions [@c1_B_rows2] [0, 0]
        : (!piper.bundle, tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<8x8xf32>)
    %m3, %k13 = piper.send %dx1 on [2, 3] to [0, 1] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %r3, %k14 = piper.recv %m3 on [0, 1] from [2, 3] stream @pp_stream microbatch 1 of 2 : tensor<?x8xf32>
    %dw01, %k15 = piper.compute @c0_B(%s1, %r3) B {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0, 1] stream @compute functions [@c0_B_rows2] [0, 0]
        : (!piper.bundle, tensor<?x8xf32>) -> tensor<8x8xf32>
    %g1, %k16 = piper.accumulate @w1 (%dw10, %dw11) on [2, 3] stream @compute : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %g0, %k17 = piper.accumulate @w0 (%dw00, %dw01) on [0, 1] stream @compute : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %l, %k18 = piper.accumulate (%l0, %l1) on [2, 3] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %n, %k19 = piper.accumulate (%n0, %n1) on [2, 3] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %f1 = piper.pack @bucket1 [@w1] (%g1) on [2, 3] : (tensor<8x8xf32>) -> tensor<64xf32>
    %f0 = piper.pack @bucket0 [@w0] (%g0) on [0, 1] : (tensor<8x8xf32>) -> tensor<64xf32>
    %p = piper.pack (%l, %n) on [2, 3] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %h1, %k20 = piper.reduce_scatter sum %f1 on [2, 3] stream @dp_stream : tensor<64xf32> -> tensor<32xf32>
    %h0, %k21 = piper.reduce_scatter sum %f0 on [0, 1] stream @dp_stream : tensor<64xf32> -> tensor<32xf32>
    %both, %k22 = piper.all_reduce sum %p on [0, 1, 2, 3] stream @dp_stream : tensor<2xf32> -> tensor<2xf32>
    %u1, %k23 = piper.update @bucket1 (%h1) scale %both optimizer @group0 on [2, 3] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    %u0, %k24 = piper.update @bucket0 (%h0) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    %v1, %k25 = piper.all_gather %u1 on [2, 3] stream @dp_stream : tensor<32xf32> -> tensor<64xf32>
    %v0, %k26 = piper.all_gather %u0 on [0, 1] stream @dp_stream : tensor<32xf32> -> tensor<64xf32>
    piper.write @bucket1, %v1 : tensor<64xf32>
    piper.write @bucket0, %v0 : tensor<64xf32>
    piper.return %both : tensor<2xf32>
  }
}
