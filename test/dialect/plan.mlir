// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s | piper-opt | FileCheck %s
// RUN: piper-opt %s --emit-bytecode | piper-opt | FileCheck %s
// RUN: piper-opt %s --mlir-print-op-generic | piper-opt | FileCheck %s

// Every record of a plan.

// CHECK: piper.plan.communicator @dp.0 {{\[}}[0, 1], [2, 3]]
piper.plan.communicator @dp.0 [[0, 1], [2, 3]]
// CHECK: piper.plan.communicator @pp.p2p0 {{\[}}[0, 1], [2, 3]]
piper.plan.communicator @pp.p2p0 [[0, 1], [2, 3]]
// CHECK: piper.plan.kernel "f" [64, 128, 64] "rrw" workspace 4096
piper.plan.kernel "f" [64, 128, 64] "rrw" workspace 4096
// CHECK: piper.plan.kernel "g" [64] ""{{$}}
piper.plan.kernel "g" [64] ""
// CHECK: piper.plan.input "args.0" : i64 rows 16 row_bytes 512
piper.plan.input "args.0" : i64 rows 16 row_bytes 512
// CHECK: piper.plan.scalar "group0.lr" : f32 at 0
piper.plan.scalar "group0.lr" : f32 at 0
// CHECK: piper.plan.state "w" parameter : tensor<4x8xf32> [#piper.segment<@class0 state at 0 element 0 count 32>]
piper.plan.state "w" parameter : tensor<4x8xf32> [#piper.segment<@class0 state at 0 element 0 count 32>]
// CHECK: piper.plan.state "w:grad" gradient : tensor<4x8xf32> [#piper.segment<@class0 arena at 64 element -16 count 16 by @dp.0 stride 16 repeat 2 stride 8>]
piper.plan.state "w:grad" gradient : tensor<4x8xf32> [#piper.segment<@class0 arena at 64 element -16 count 16 by @dp.0 stride 16 repeat 2 stride 8>]
// CHECK: piper.plan.output "loss_sum" : tensor<f32> of @class0 scalar[64]
piper.plan.output "loss_sum" : tensor<f32> of @class0 scalar[64]
// CHECK: piper.plan @class0 ranks [0, 1] arena 4096 state 256 scalar 72 peak 4096 events 1 {
piper.plan @class0 ranks [0, 1] arena 4096 state 256 scalar 72 peak 4096 events 1 {
  // CHECK: piper.plan.stream @compute workspace 4096 cores 2
  piper.plan.stream @compute workspace 4096 cores 2
  // CHECK: piper.plan.stream @pp{{$}}
  piper.plan.stream @pp
  // CHECK: piper.plan.entry "step" {
  piper.plan.entry "step" {
    // CHECK: piper.plan.buffer 0 "x" kind "saved" bytes 64{{$}}
    piper.plan.buffer 0 "x" kind "saved" bytes 64
    // CHECK: piper.plan.buffer 1 "y" kind "activation" bytes 64 at 128 live 0 to 4
    piper.plan.buffer 1 "y" kind "activation" bytes 64 at 128 live 0 to 4
    // CHECK: piper.plan.launch "f" (input 0[0 + @dp.0 * 512], state[0], buffer 1[0]) on @compute when "!update" label "F" position 7
    piper.plan.launch "f" (input 0[0 + @dp.0 * 512], state[0], buffer 1[0]) on @compute when "!update" label "F" position 7
    // CHECK: piper.plan.record 0 on @compute
    piper.plan.record 0 on @compute
    // CHECK: piper.plan.wait 0 on @pp
    piper.plan.wait 0 on @pp
    // CHECK: piper.plan.send arena[128] bytes 64 through @pp.p2p0 on @pp
    piper.plan.send arena[128] bytes 64 through @pp.p2p0 on @pp
    // CHECK: piper.plan.recv arena[0] bytes 64 through @pp.p2p0 on @pp
    piper.plan.recv arena[0] bytes 64 through @pp.p2p0 on @pp
    // CHECK: piper.plan.release 0 of @pp.p2p0 on @compute
    piper.plan.release 0 of @pp.p2p0 on @compute
    // CHECK: piper.plan.copy arena[0], scalar[64] bytes 8 on @compute
    piper.plan.copy arena[0], scalar[64] bytes 8 on @compute
    // CHECK: piper.plan.fill_zero workspace[0] bytes 8 on @compute
    piper.plan.fill_zero workspace[0] bytes 8 on @compute
    // CHECK: piper.plan.accumulate "fresh" state[0], arena[0] : f32 count 16 on @compute
    piper.plan.accumulate "fresh" state[0], arena[0] : f32 count 16 on @compute
    // CHECK: piper.plan.all_reduce max arena[0] to arena[0] : f32 count 16 over @dp.0 on @compute
    piper.plan.all_reduce max arena[0] to arena[0] : f32 count 16 over @dp.0 on @compute
    // CHECK: piper.plan.reduce_scatter sum arena[0] to arena[64] : f32 count 8 over @dp.0 on @compute
    piper.plan.reduce_scatter sum arena[0] to arena[64] : f32 count 8 over @dp.0 on @compute
    // CHECK: piper.plan.all_gather arena[0 + @dp.0 * 32] to arena[0] : f32 count 8 over @dp.0 on @compute
    piper.plan.all_gather arena[0 + @dp.0 * 32] to arena[0] : f32 count 8 over @dp.0 on @compute
    // CHECK: piper.plan.broadcast 1 arena[0] to arena[0] : f32 count 8 over @dp.0 on @compute
    piper.plan.broadcast 1 arena[0] to arena[0] : f32 count 8 over @dp.0 on @compute
    // CHECK: piper.plan.all_to_all arena[0] to arena[64] : f32 count 8 over @dp.0 on @compute
    piper.plan.all_to_all arena[0] to arena[64] : f32 count 8 over @dp.0 on @compute
  }
}
