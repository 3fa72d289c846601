// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-verify-scheduled | FileCheck %s

// Stages 0 and 2 on rank 0, 1 and 3 on rank 1. All receives that unblock the other rank come before the sends that would wait for it: sound
// even if a send waits for its receiver. The phase is closed.

// CHECK: module attributes {piper.phase = "scheduled"}
// CHECK-NOT: piper.strategy
module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.strategy @strategy {
  }
  piper.graph @step rows 2 {
    %x0 = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x4xf32>
    %x1 = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x4xf32>
    %y00, %tf00 = piper.compute @f(%x0) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m00, %ts00 = piper.send %y00 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %r10, %tr10 = piper.recv %m00 on [1] from [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %y10, %tf10 = piper.compute @f(%r10) F {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [1] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %y01, %tf01 = piper.compute @f(%x1) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m10, %ts10 = piper.send %y10 on [1] to [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %r20, %tr20 = piper.recv %m10 on [0] from [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %m01, %ts01 = piper.send %y01 on [0] to [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %r11, %tr11 = piper.recv %m01 on [1] from [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %y11, %tf11 = piper.compute @f(%r11) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [1] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %y20, %tf20 = piper.compute @f(%r20) F {MB = 0 : i64, stage = 2 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m11, %ts11 = piper.send %y11 on [1] to [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %r21, %tr21 = piper.recv %m11 on [0] from [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %m20, %ts20 = piper.send %y20 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %r30, %tr30 = piper.recv %m20 on [1] from [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %loss0, %weight0, %tf30 = piper.compute @l(%r30, %r30) F {MB = 0 : i64, stage = 3 : i64} microbatch 0 of 2 on [1] stream @compute functions [@l_rows1] [0] : (tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %y21, %tf21 = piper.compute @f(%r21) F {MB = 1 : i64, stage = 2 : i64} microbatch 1 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m21, %ts21 = piper.send %y21 on [0] to [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %r31, %tr31 = piper.recv %m21 on [1] from [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %loss1, %weight1, %tf31 = piper.compute @l(%r31, %r31) F {MB = 1 : i64, stage = 3 : i64} microbatch 1 of 2 on [1] stream @compute functions [@l_rows1] [0] : (tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %sumloss, %tl = piper.accumulate (%loss0, %loss1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %sumweight, %tw = piper.accumulate (%weight0, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %pair = piper.pack (%sumloss, %sumweight) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %pair : tensor<2xf32>
  }
}
