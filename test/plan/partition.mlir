// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-partition -split-input-file | FileCheck %s
// RUN: piper-opt %s --piper-plan-pipeline -split-input-file -o /dev/null

// Seven rows on two replicas: each has its own rows and member, so each its own plan. A buffer that the forward changes is stored at the end, unless the run says not to.

// CHECK-LABEL: module attributes
// CHECK: piper.plan.state "mean" buffer
// CHECK-SAME: @class0 state at [[MEAN:[0-9]+]] element 0 count 3>
// A state that no node reads is kept all the same.
// CHECK: piper.plan.state "unread" parameter : tensor<5xf32> [#piper.segment<@class0 state at
// CHECK: piper.plan @class0 ranks [0]
// CHECK: launch "f_rows4" (input 0[0], state{{\[}}[[MEAN]]], state{{.*}} when "fresh"
// CHECK: launch "f_rows4" (input 0[0], state{{\[}}[[MEAN]]], state
// CHECK-SAME: scalar[64], scalar[68], buffer [[NEW:[0-9]+]][0], buffer
// CHECK-SAME: when "!fresh"
// CHECK-NEXT: accumulate "add" state{{.*}} when "!fresh"
// CHECK: copy state{{\[}}[[MEAN]]], buffer [[NEW]][0] bytes 12 on @compute when "buffers" label "write mean_bucket"
// CHECK: all_reduce sum state{{.*}} when "reduce" label "all_reduce bucket0"
// CHECK: piper.plan @class1 ranks [1]
// CHECK: launch "f_rows3" (input 0[32], state
module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["dp"] [2]
  piper.stream @compute
  piper.stream @dp
  piper.state @w : tensor<2x2xf32> parameter trainable ["w"]
  piper.state @mean : tensor<3xf32> buffer ["mean"]
  piper.state @unread : tensor<5xf32> parameter ["unread"]
  piper.optimizer @group0 "sgd" slots [] scalars ["lr"] config {}
  piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 32 ranks [0, 1] optimizer @group0
  piper.bucket @mean_bucket [@mean] offsets [0] elements 3 padded 32 ranks [0, 1]
  piper.chunk @f F operands [1, 1, 1] results [1, 1, 1, 1] [{binding = {rows = 4 : i64}, function = @f_rows4}, {binding = {rows = 3 : i64}, function = @f_rows3}]
  func.func private @f_rows4(tensor<4x2xf32>, tensor<3xf32>, tensor<2x2xf32>) -> (tensor<f32>, tensor<f32>, tensor<3xf32>, tensor<2x2xf32>)
  func.func private @f_rows3(tensor<3x2xf32>, tensor<3xf32>, tensor<2x2xf32>) -> (tensor<f32>, tensor<f32>, tensor<3xf32>, tensor<2x2xf32>)
  piper.graph @step rows 7 {
    %x = piper.input "args.0" 0 split : tensor<?x2xf32>
    %b = piper.read @bucket0 : tensor<32xf32>
    %w = piper.unpack @bucket0 @w %b : tensor<32xf32> -> tensor<2x2xf32>
    %mb = piper.read @mean_bucket : tensor<32xf32>
    %m = piper.unpack @mean_bucket @mean %mb : tensor<32xf32> -> tensor<3xf32>
    %l, %n, %new, %g, %t0 = piper.compute @f(%x, %m, %w) F {MB = 0 : i64} on [0, 1] stream @compute functions [@f_rows4, @f_rows3] [0, 1]
        : (tensor<?x2xf32>, tensor<3xf32>, tensor<2x2xf32>) -> (tensor<f32>, tensor<f32>, tensor<3xf32>, tensor<2x2xf32>)
    piper.write @mean_bucket, %new : tensor<3xf32>
    %sl, %t1 = piper.accumulate (%l) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %sn, %t2 = piper.accumulate (%n) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %sg, %t3 = piper.accumulate @w (%g) on [0, 1] stream @compute : tensor<2x2xf32> -> tensor<2x2xf32>
    %p = piper.pack (%sl, %sn) on [0, 1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %f = piper.pack @bucket0 [@w] (%sg) on [0, 1] : (tensor<2x2xf32>) -> tensor<32xf32>
    %both, %t4 = piper.all_reduce sum %p on [0, 1] stream @dp : tensor<2xf32> -> tensor<2xf32>
    %r, %t5 = piper.all_reduce sum %f on [0, 1] stream @dp : tensor<32xf32> -> tensor<32xf32>
    %u, %t6 = piper.update @bucket0 (%r) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    piper.return %both : tensor<2xf32>
  }
}

// -----

// One weight on both stages: each rank adds what its own nodes contribute, and the whole group reduces. The other state of the bucket has contributions on rank 0 only,
// so rank 1 zeroes its part.

// CHECK-LABEL: module attributes
// CHECK: piper.plan @class0 ranks [0]
// CHECK: launch "a_rows2" (input 0[0], state{{\[}}[[P:[0-9]+]]], buffer
// CHECK: accumulate "add" state{{\[}}[[G:[0-9]+]]], buffer {{.*}} label "accumulate tied"
// CHECK: accumulate "add" state[{{[0-9]+}}], buffer {{.*}} label "accumulate own"
// CHECK-NOT: fill_zero state
// CHECK: all_reduce sum state{{\[}}[[G]]] to state{{\[}}[[G]]] : f32 count 32
// CHECK: piper.plan @class1 ranks [1]
// CHECK: accumulate "add" state{{\[}}[[G:[0-9]+]]], buffer {{.*}} label "accumulate tied"
// CHECK: fill_zero state[{{[0-9]+}}] bytes 8 on @dp label "all_reduce bucket0"
// CHECK-NEXT: all_reduce sum state{{\[}}[[G]]] to state{{\[}}[[G]]] : f32 count 32
// CHECK: copy scalar[64], buffer {{.*}} bytes 4
// CHECK-NEXT: copy scalar[68], buffer {{.*}} bytes 4
module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp
  piper.stream @dp
  piper.state @tied : tensor<4xf32> parameter trainable ["tied", "head"]
  piper.state @own : tensor<2xf32> parameter trainable ["own"]
  piper.optimizer @group0 "sgd" slots [] scalars ["lr"] config {}
  piper.bucket @bucket0 [@tied, @own] offsets [0, 16] elements 18 padded 32 ranks [0, 1] optimizer @group0
  piper.chunk @a F operands [1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @a_rows2}]
  piper.chunk @b F operands [1, 1] results [1, 1, 1] [{binding = {rows = 2 : i64}, function = @b_rows2}]
  func.func private @a_rows2(tensor<2x2xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<4xf32>, tensor<2xf32>)
  func.func private @b_rows2(tensor<f32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x2xf32>
    %bucket = piper.read @bucket0 : tensor<32xf32>
    %w = piper.unpack @bucket0 @tied %bucket : tensor<32xf32> -> tensor<4xf32>
    %y, %ga, %go, %t0 = piper.compute @a(%x, %w) F {stage = 0 : i64} on [0] stream @compute functions [@a_rows2] [0]
        : (tensor<?x2xf32>, tensor<4xf32>) -> (tensor<f32>, tensor<4xf32>, tensor<2xf32>)
    %m, %t1 = piper.send %y on [0] to [1] stream @pp : tensor<f32>
    %r, %t2 = piper.recv %m on [1] from [0] stream @pp : tensor<f32>
    %l, %n, %gb, %t3 = piper.compute @b(%r, %w) F {stage = 1 : i64} on [1] stream @compute functions [@b_rows2] [0]
        : (tensor<f32>, tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>)
    %sa, %t4 = piper.accumulate @tied (%ga) on [0] stream @compute : tensor<4xf32> -> tensor<4xf32>
    %sb, %t5 = piper.accumulate @tied (%gb) on [1] stream @compute : tensor<4xf32> -> tensor<4xf32>
    %so, %t6 = piper.accumulate @own (%go) on [0] stream @compute : tensor<2xf32> -> tensor<2xf32>
    %f = piper.pack @bucket0 [@tied, @tied, @own] (%sa, %sb, %so) on [0, 1] : (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) -> tensor<32xf32>
    // Parts that are no sums are copied to their place.
    %p = piper.pack (%l, %n) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %g, %t7 = piper.all_reduce sum %f on [0, 1] stream @dp : tensor<32xf32> -> tensor<32xf32>
    %both, %t8 = piper.all_reduce sum %p on [0, 1] stream @dp : tensor<2xf32> -> tensor<2xf32>
    %u, %t9 = piper.update @bucket0 (%g) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<32xf32>, tensor<2xf32> -> tensor<32xf32>
    piper.return %both : tensor<2xf32>
  }
}

// -----

// ZeRO-3: parameters are gathered for each use; gradients are reduced in working memory, where the first contribution is written in place and gaps are zeroed.

// CHECK-LABEL: module attributes
// CHECK: piper.plan @class0 ranks [0, 1]
// CHECK: all_gather state{{\[}}[[SHARD:[0-9]+]]] to buffer [[W:[0-9]+]][0] : f32 count 16
// CHECK: launch "f_rows2" (input 0[0 + @{{.*}} * 16], buffer [[W]][0], buffer [[W]][64], {{.*}}, buffer [[FLAT:[0-9]+]][0], buffer [[FLAT]][64])
// CHECK: fill_zero buffer [[FLAT]][16] bytes 48
// CHECK-NEXT: fill_zero buffer [[FLAT]][72] bytes 56
// CHECK-NEXT: reduce_scatter sum buffer [[FLAT]][0] to buffer [[FLAT]][0 + @{{.*}} * 64] : f32 count 16 {{.*}} on @dp label "reduce_scatter bucket0"
// CHECK-NEXT: accumulate "fresh" state{{\[}}[[GRAD:[0-9]+]]], buffer [[FLAT]][0 + @{{.*}} * 64] : f32 count 16 on @dp
// CHECK: launch "update_sgd_group0_16" (state{{\[}}[[SHARD]]], state{{\[}}[[GRAD]]], scalar[0], state[0]) on @compute when "update"
module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["dp"] [2]
  piper.stream @compute
  piper.stream @gather
  piper.stream @dp
  piper.state @a : tensor<4xf32> parameter trainable ["a"]
  piper.state @b : tensor<2xf32> parameter trainable ["b"]
  piper.optimizer @group0 "sgd" slots [] scalars ["lr"] config {}
  piper.bucket @bucket0 [@a, @b] offsets [0, 16] elements 18 padded 32 ranks [0, 1] optimizer @group0 {shard_params, shard_grads, shard_optimizer}
  piper.chunk @f F operands [1, 1, 1] results [1, 1, 1, 1] [{binding = {rows = 2 : i64}, function = @f_rows2}]
  func.func private @f_rows2(tensor<2x2xf32>, tensor<4xf32>, tensor<2xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<2xf32>)
  piper.graph @step rows 4 {
    %x = piper.input "args.0" 0 split : tensor<?x2xf32>
    %shard = piper.read @bucket0 : tensor<16xf32>
    %whole, %t0 = piper.all_gather %shard on [0, 1] stream @gather : tensor<16xf32> -> tensor<32xf32>
    %a = piper.unpack @bucket0 @a %whole : tensor<32xf32> -> tensor<4xf32>
    %b = piper.unpack @bucket0 @b %whole : tensor<32xf32> -> tensor<2xf32>
    %l, %n, %ga, %gb, %t1 = piper.compute @f(%x, %a, %b) F {MB = 0 : i64} on [0, 1] stream @compute functions [@f_rows2] [0, 0]
        : (tensor<?x2xf32>, tensor<4xf32>, tensor<2xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<2xf32>)
    %sa, %t2 = piper.accumulate @a (%ga) on [0, 1] stream @compute : tensor<4xf32> -> tensor<4xf32>
    %sb, %t3 = piper.accumulate @b (%gb) on [0, 1] stream @compute : tensor<2xf32> -> tensor<2xf32>
    %sl, %t4 = piper.accumulate (%l) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %sn, %t5 = piper.accumulate (%n) on [0, 1] stream @compute : tensor<f32> -> tensor<f32>
    %f = piper.pack @bucket0 [@a, @b] (%sa, %sb) on [0, 1] : (tensor<4xf32>, tensor<2xf32>) -> tensor<32xf32>
    %p = piper.pack (%sl, %sn) on [0, 1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %g, %t6 = piper.reduce_scatter sum %f on [0, 1] stream @dp : tensor<32xf32> -> tensor<16xf32>
    %both, %t7 = piper.all_reduce sum %p on [0, 1] stream @dp : tensor<2xf32> -> tensor<2xf32>
    %u, %t8 = piper.update @bucket0 (%g) scale %both optimizer @group0 on [0, 1] stream @compute : tensor<16xf32>, tensor<2xf32> -> tensor<16xf32>
    piper.return %both : tensor<2xf32>
  }
}

// -----

// A bundle travels whole. A token orders two streams.

// CHECK-LABEL: module attributes
// CHECK: piper.plan.communicator @[[FIRST:pp.p2p.[0-9]+]] {{\[}}[0, 1]]
// CHECK: piper.plan @class0 ranks [0]
// CHECK: launch "f_rows2"
// CHECK: send buffer {{[0-9]+}}[0] bytes 24 through @[[FIRST]] on @pp
// CHECK: send buffer {{[0-9]+}}[0] bytes 80 through @[[FIRST]] on @pp
// CHECK: piper.plan @class1 ranks [1]
// CHECK: recv buffer [[Y:[0-9]+]][0] bytes 24 through @[[FIRST]] on @pp
// CHECK-NEXT: recv buffer [[BUNDLE:[0-9]+]][0] bytes 80 through @[[FIRST]] on @pp
// CHECK-NEXT: record [[E:[0-9]+]] on @pp
// CHECK-NEXT: wait [[E]] on @other
// CHECK-NEXT: launch "h_rows2"
// CHECK: launch "g_rows2" (buffer [[Y]][0], buffer [[BUNDLE]][0], buffer [[BUNDLE]][64], scalar[0], scalar[4])
module attributes {piper.phase = "scheduled"} {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp
  piper.stream @other
  piper.chunk @f F operands [1] results [1, 2] [{binding = {rows = 2 : i64}, function = @f_rows2}]
  piper.chunk @h F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @h_rows2}]
  piper.chunk @g F operands [1, 2] results [1, 1] [{binding = {rows = 2 : i64}, function = @g_rows2}]
  func.func private @f_rows2(tensor<2x2xf32>) -> (tensor<2x3xf32>, tensor<1xf32>, tensor<2xi64>)
  func.func private @h_rows2(tensor<2x2xf32>) -> tensor<f32>
  func.func private @g_rows2(tensor<2x3xf32>, tensor<1xf32>, tensor<2xi64>) -> (tensor<f32>, tensor<f32>)
  piper.graph @evaluate rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x2xf32>
    %y, %s, %t0 = piper.compute @f(%x) F {stage = 0 : i64} on [0] stream @compute functions [@f_rows2] [0] : (tensor<?x2xf32>) -> (tensor<?x3xf32>, !piper.bundle)
    %m0, %t1 = piper.send %y on [0] to [1] stream @pp : tensor<?x3xf32>
    %m1, %t2 = piper.send %s on [0] to [1] stream @pp : !piper.bundle
    %r0, %t5 = piper.recv %m0 on [1] from [0] stream @pp : tensor<?x3xf32>
    %r1, %t3 = piper.recv %m1 on [1] from [0] stream @pp : !piper.bundle
    %z, %t4 = piper.compute @h(%x) after(%t3) F {stage = 1 : i64} on [1] stream @other functions [@h_rows2] [0] : (tensor<?x2xf32>) -> tensor<f32>
    %l, %n, %t6 = piper.compute @g(%r0, %r1) F {stage = 1 : i64} on [1] stream @compute functions [@g_rows2] [0] : (tensor<?x3xf32>, !piper.bundle) -> (tensor<f32>, tensor<f32>)
    %sl, %t7 = piper.accumulate (%l) on [1] stream @compute : tensor<f32> -> tensor<f32>
    %sn, %t8 = piper.accumulate (%n) on [1] stream @compute : tensor<f32> -> tensor<f32>
    %p = piper.pack (%sl, %sn) on [1] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %both, %t9 = piper.all_reduce sum %p on [0, 1] stream @pp : tensor<2xf32> -> tensor<2xf32>
    piper.return %both : tensor<2xf32>
  }
}
