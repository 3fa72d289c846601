// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-verify-scheduled -split-input-file -verify-diagnostics
// RUN: not piper-opt %s --piper-verify-scheduled -split-input-file 2>&1 | FileCheck %s

// CHECK: note: the order of each rank:
// CHECK-NEXT: rank 0 rank 1{{$}}
// CHECK-NEXT: step 0 F MB=0 stage=0 recv MB=0 stage=0{{$}}
// CHECK-NEXT: step 1 send MB=0 stage=0 F MB=0 stage=1{{$}}
// CHECK-NEXT: step 2 F MB=1 stage=0 send MB=0 stage=1 <-- rank 1 send MB=0 stage=1{{$}}
// CHECK-NEXT: step 3 send MB=1 stage=0 recv MB=1 stage=0 <-- rank 0 send MB=1 stage=0 <-- rank 1 recv MB=1 stage=0{{$}}

// Both ranks send first. With sends that do not wait this runs, with sends that do it hangs.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  // expected-error @below {{expected an order without deadlock, got 4 operations that wait for each other where a send waits for its receiver}}
  // expected-note @below {{the order of each rank:}}
  piper.graph @step rows 2 {
    %x0 = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x4xf32>
    %x1 = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x4xf32>
    %y00, %tf00 = piper.compute @f(%x0) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m00, %ts00 = piper.send %y00 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %r10, %tr10 = piper.recv %m00 on [1] from [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %y10, %tf10 = piper.compute @f(%r10) F {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [1] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %y01, %tf01 = piper.compute @f(%x1) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{rank 0: send {MB = 1, stage = 0} waits for rank 1: recv {MB = 1, stage = 0}}}
    %m01, %ts01 = piper.send %y01 on [0] to [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 0 : i64} : tensor<?x4xf32>
    // expected-note @below {{rank 1: send {MB = 0, stage = 1} waits for rank 0: recv {MB = 0, stage = 1}}}
    %m10, %ts10 = piper.send %y10 on [1] to [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 1 : i64} : tensor<?x4xf32>
    // expected-note @below {{rank 0: recv {MB = 0, stage = 1} waits for rank 0: send {MB = 1, stage = 0}}}
    %r20, %tr20 = piper.recv %m10 on [0] from [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 1 : i64} : tensor<?x4xf32>
    // expected-note @below {{rank 1: recv {MB = 1, stage = 0} waits for rank 1: send {MB = 0, stage = 1}}}
    %r11, %tr11 = piper.recv %m01 on [1] from [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %y11, %tf11 = piper.compute @f(%r11) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [1] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %y20, %tf20 = piper.compute @f(%r20) F {MB = 0 : i64, stage = 2 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m20, %ts20 = piper.send %y20 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %m11, %ts11 = piper.send %y11 on [1] to [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %r21, %tr21 = piper.recv %m11 on [0] from [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %y21, %tf21 = piper.compute @f(%r21) F {MB = 1 : i64, stage = 2 : i64} microbatch 1 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m21, %ts21 = piper.send %y21 on [0] to [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %r30, %tr30 = piper.recv %m20 on [1] from [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %loss0, %weight0, %tf30 = piper.compute @l(%r30, %r30) F {MB = 0 : i64, stage = 3 : i64} microbatch 0 of 2 on [1] stream @compute functions [@l_rows1] [0] : (tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %r31, %tr31 = piper.recv %m21 on [1] from [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %loss1, %weight1, %tf31 = piper.compute @l(%r31, %r31) F {MB = 1 : i64, stage = 3 : i64} microbatch 1 of 2 on [1] stream @compute functions [@l_rows1] [0] : (tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %sumloss, %tl = piper.accumulate (%loss0, %loss1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %sumweight, %tw = piper.accumulate (%weight0, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %pair = piper.pack (%sumloss, %sumweight) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %pair : tensor<2xf32>
  }
}

// -----

// One pair swapped: the next pair hangs.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  // expected-error @below {{expected an order without deadlock, got 4 operations that wait for each other where a send waits for its receiver}}
  // expected-note @below {{the order of each rank:}}
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
    // expected-note @below {{rank 0: send {MB = 0, stage = 2} waits for rank 1: recv {MB = 0, stage = 2}}}
    %m20, %ts20 = piper.send %y20 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 2 : i64} : tensor<?x4xf32>
    // expected-note @below {{rank 1: send {MB = 1, stage = 1} waits for rank 0: recv {MB = 1, stage = 1}}}
    %m11, %ts11 = piper.send %y11 on [1] to [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    // expected-note @below {{rank 0: recv {MB = 1, stage = 1} waits for rank 0: send {MB = 0, stage = 2}}}
    %r21, %tr21 = piper.recv %m11 on [0] from [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %y21, %tf21 = piper.compute @f(%r21) F {MB = 1 : i64, stage = 2 : i64} microbatch 1 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m21, %ts21 = piper.send %y21 on [0] to [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 2 : i64} : tensor<?x4xf32>
    // expected-note @below {{rank 1: recv {MB = 0, stage = 2} waits for rank 1: send {MB = 1, stage = 1}}}
    %r30, %tr30 = piper.recv %m20 on [1] from [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %loss0, %weight0, %tf30 = piper.compute @l(%r30, %r30) F {MB = 0 : i64, stage = 3 : i64} microbatch 0 of 2 on [1] stream @compute functions [@l_rows1] [0] : (tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %r31, %tr31 = piper.recv %m21 on [1] from [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 2 : i64} : tensor<?x4xf32>
    %loss1, %weight1, %tf31 = piper.compute @l(%r31, %r31) F {MB = 1 : i64, stage = 3 : i64} microbatch 1 of 2 on [1] stream @compute functions [@l_rows1] [0] : (tensor<?x4xf32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    %sumloss, %tl = piper.accumulate (%loss0, %loss1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %sumweight, %tw = piper.accumulate (%weight0, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %pair = piper.pack (%sumloss, %sumweight) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %pair : tensor<2xf32>
  }
}

// -----

// Received in another order than sent: microbatch 1 would be taken for microbatch 0.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x0 = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x4xf32>
    %x1 = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x4xf32>
    %y00, %tf00 = piper.compute @f(%x0) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m00, %ts00 = piper.send %y00 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %r10, %tr10 = piper.recv %m00 on [1] from [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %y10, %tf10 = piper.compute @f(%r10) F {MB = 0 : i64, stage = 1 : i64} microbatch 0 of 2 on [1] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %y01, %tf01 = piper.compute @f(%x1) F {MB = 1 : i64, stage = 0 : i64} microbatch 1 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m01, %ts01 = piper.send %y01 on [0] to [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %r11, %tr11 = piper.recv %m01 on [1] from [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 0 : i64} : tensor<?x4xf32>
    %y11, %tf11 = piper.compute @f(%r11) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [1] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{the message that arrives here}}
    %m11, %ts11 = piper.send %y11 on [1] to [0] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    // expected-note @below {{the message that is expected}}
    %m10, %ts10 = piper.send %y10 on [1] to [0] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 1 : i64} : tensor<?x4xf32>
    // expected-error @below {{expected messages from [1] to [0] to be received in the order they are sent in, got one that is sent later or earlier}}
    %r20, %tr20 = piper.recv %m10 on [0] from [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %r21, %tr21 = piper.recv %m11 on [0] from [1] stream @pp_stream microbatch 1 of 2 tags {MB = 1 : i64, stage = 1 : i64} : tensor<?x4xf32>
    %y20, %tf20 = piper.compute @f(%r20) F {MB = 0 : i64, stage = 2 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
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

// -----

// The two sides name other streams.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x0 = piper.input "args.0" 0 split microbatch 0 of 2 : tensor<?x4xf32>
    %x1 = piper.input "args.0" 0 split microbatch 1 of 2 : tensor<?x4xf32>
    %y00, %tf00 = piper.compute @f(%x0) F {MB = 0 : i64, stage = 0 : i64} microbatch 0 of 2 on [0] stream @compute functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{the send}}
    %m00, %ts00 = piper.send %y00 on [0] to [1] stream @pp_stream microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
    // expected-error @below {{expected the stream of the send, @pp_stream, got @compute}}
    %r10, %tr10 = piper.recv %m00 on [1] from [0] stream @compute microbatch 0 of 2 tags {MB = 0 : i64, stage = 0 : i64} : tensor<?x4xf32>
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

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
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
    // expected-error @below {{expected a stream, got none}}
    %y11, %tf11 = piper.compute @f(%r11) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [1] functions [@f_rows1] [0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
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

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
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
    // expected-error @below {{expected a device group, got none}}
    %y11, %tf11 = piper.compute @f(%r11) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 stream @compute : (tensor<?x4xf32>) -> tensor<?x4xf32>
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

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
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
    // expected-error @below {{expected a function for each rank of F {MB = 1, stage = 1}}}
    %y11, %tf11 = piper.compute @f(%r11) F {MB = 1 : i64, stage = 1 : i64} microbatch 1 of 2 on [1] stream @compute : (tensor<?x4xf32>) -> tensor<?x4xf32>
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

// -----

// A microbatch is left out of the loss.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
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
    // expected-error @below {{expected contributions from 2 microbatches, got 1}}
    %sumloss, %tl = piper.accumulate (%loss0) on [1] stream @compute : tensor<f32> -> tensor<f32>
    %sumweight, %tw = piper.accumulate (%weight0, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %pair = piper.pack (%sumloss, %sumweight) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %pair : tensor<2xf32>
  }
}

// -----

// A microbatch counts twice.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
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
    // expected-error @below {{expected each contribution once, got one twice}}
    %sumloss, %tl = piper.accumulate (%loss0, %loss0) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %sumweight, %tw = piper.accumulate (%weight0, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %pair = piper.pack (%sumloss, %sumweight) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %pair : tensor<2xf32>
  }
}

// -----

// A microbatch has two contributions, the other one.

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @f F operands [1] results [1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  piper.chunk @l F operands [1, 1] results [1, 1] [{binding = {rows = 1 : i64}, function = @l_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>) -> tensor<1x4xf32>
  func.func private @l_rows1(tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<f32>, tensor<f32>)
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
    // expected-error @below {{expected as many contributions from every microbatch, got 1 from microbatch 0 and 2 from microbatch 1}}
    %sumloss, %tl = piper.accumulate (%loss0, %loss1, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32>, tensor<f32> -> tensor<f32>
    %sumweight, %tw = piper.accumulate (%weight0, %weight1) on [1] stream @compute : tensor<f32>, tensor<f32> -> tensor<f32>
    %pair = piper.pack (%sumloss, %sumweight) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    piper.return %pair : tensor<2xf32>
  }
}

// -----

// A gradient is applied before it is reduced.

module {
  piper.mesh @mesh ["dp"] [2]
  piper.stream @compute
  piper.stream @dp_stream
  piper.state @w : tensor<32xf32> parameter trainable ["w"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.bucket @bucket0 [@w] offsets [0] elements 32 padded 32 ranks [0, 1] optimizer @group0 {reduce_stream = @dp_stream}
  piper.chunk @f F operands [1, 1] results [1, 1, 1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>, tensor<32xf32>) -> (tensor<f32>, tensor<f32>, tensor<32xf32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %flat = piper.read @bucket0 : tensor<32xf32>
    %w = piper.unpack @bucket0 @w %flat : tensor<32xf32> -> tensor<32xf32>
    %loss, %weight, %g, %t0 = piper.compute @f(%x, %w) F {} on [0, 1] stream @compute functions [@f_rows1] [0, 0] : (tensor<?x4xf32>, tensor<32xf32>) -> (tensor<f32>, tensor<f32>, tensor<32xf32>)
    %sumloss, %t1 = piper.accumulate (%loss) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %sumweight, %t2 = piper.accumulate (%weight) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %part = piper.pack (%sumloss, %sumweight) on [0, 1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %both, %t3 = piper.all_reduce sum %part on [0, 1] stream @dp_stream : tensor<2xf32> -> tensor<2xf32>
    %sum, %t4 = piper.accumulate @w (%g) on [0, 1] stream @compute : tensor<32xf32> -> tensor<32xf32>
    %packed = piper.pack @bucket0 [@w] (%sum) on [0, 1] : (tensor<32xf32>) -> tensor<32xf32>
    %reduced, %t5 = piper.all_reduce sum %packed on [0, 1] stream @dp_stream : tensor<32xf32> -> tensor<32xf32>
    // expected-error @below {{expected a gradient that is reduced over [0, 1] before it is applied}}
    %new, %t6 = piper.update @bucket0 (%packed) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    piper.return %both : tensor<2xf32>
  }
}

// -----

// A reduced gradient is applied twice.

module {
  piper.mesh @mesh ["dp"] [2]
  piper.stream @compute
  piper.stream @dp_stream
  piper.state @w : tensor<32xf32> parameter trainable ["w"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.bucket @bucket0 [@w] offsets [0] elements 32 padded 32 ranks [0, 1] optimizer @group0 {reduce_stream = @dp_stream}
  piper.chunk @f F operands [1, 1] results [1, 1, 1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>, tensor<32xf32>) -> (tensor<f32>, tensor<f32>, tensor<32xf32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %flat = piper.read @bucket0 : tensor<32xf32>
    %w = piper.unpack @bucket0 @w %flat : tensor<32xf32> -> tensor<32xf32>
    %loss, %weight, %g, %t0 = piper.compute @f(%x, %w) F {} on [0, 1] stream @compute functions [@f_rows1] [0, 0] : (tensor<?x4xf32>, tensor<32xf32>) -> (tensor<f32>, tensor<f32>, tensor<32xf32>)
    %sumloss, %t1 = piper.accumulate (%loss) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %sumweight, %t2 = piper.accumulate (%weight) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %part = piper.pack (%sumloss, %sumweight) on [0, 1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %both, %t3 = piper.all_reduce sum %part on [0, 1] stream @dp_stream : tensor<2xf32> -> tensor<2xf32>
    %sum, %t4 = piper.accumulate @w (%g) on [0, 1] stream @compute : tensor<32xf32> -> tensor<32xf32>
    %packed = piper.pack @bucket0 [@w] (%sum) on [0, 1] : (tensor<32xf32>) -> tensor<32xf32>
    // expected-error @below {{expected one use of a reduced gradient}}
    %reduced, %t5 = piper.all_reduce sum %packed on [0, 1] stream @dp_stream : tensor<32xf32> -> tensor<32xf32>
    %new, %t6 = piper.update @bucket0 (%reduced) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    %again, %t7 = piper.update @bucket0 (%reduced) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    piper.return %both : tensor<2xf32>
  }
}

// -----

// A bucket is updated twice.

module {
  piper.mesh @mesh ["dp"] [2]
  piper.stream @compute
  piper.stream @dp_stream
  piper.state @w : tensor<32xf32> parameter trainable ["w"]
  piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
  piper.bucket @bucket0 [@w] offsets [0] elements 32 padded 32 ranks [0, 1] optimizer @group0 {reduce_stream = @dp_stream}
  piper.chunk @f F operands [1, 1] results [1, 1, 1] [{binding = {rows = 1 : i64}, function = @f_rows1}]
  func.func private @f_rows1(tensor<1x4xf32>, tensor<32xf32>) -> (tensor<f32>, tensor<f32>, tensor<32xf32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %flat = piper.read @bucket0 : tensor<32xf32>
    %w = piper.unpack @bucket0 @w %flat : tensor<32xf32> -> tensor<32xf32>
    %loss, %weight, %g, %t0 = piper.compute @f(%x, %w) F {} on [0, 1] stream @compute functions [@f_rows1] [0, 0] : (tensor<?x4xf32>, tensor<32xf32>) -> (tensor<f32>, tensor<f32>, tensor<32xf32>)
    %sumloss, %t1 = piper.accumulate (%loss) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %sumweight, %t2 = piper.accumulate (%weight) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %part = piper.pack (%sumloss, %sumweight) on [0, 1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %both, %t3 = piper.all_reduce sum %part on [0, 1] stream @dp_stream : tensor<2xf32> -> tensor<2xf32>
    %sum, %t4 = piper.accumulate @w (%g) on [0, 1] stream @compute : tensor<32xf32> -> tensor<32xf32>
    %packed = piper.pack @bucket0 [@w] (%sum) on [0, 1] : (tensor<32xf32>) -> tensor<32xf32>
    %reduced, %t5 = piper.all_reduce sum %packed on [0, 1] stream @dp_stream : tensor<32xf32> -> tensor<32xf32>
    // expected-note @below {{the other one}}
    %new, %t6 = piper.update @bucket0 (%reduced) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    %zero = piper.pack @bucket0 [] () on [0, 1] : () -> tensor<32xf32>
    %zeros, %t8 = piper.all_reduce sum %zero on [0, 1] stream @dp_stream : tensor<32xf32> -> tensor<32xf32>
    // expected-error @below {{expected one update of @bucket0, got two}}
    %again, %t7 = piper.update @bucket0 (%zeros) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    piper.return %both : tensor<2xf32>
  }
}
