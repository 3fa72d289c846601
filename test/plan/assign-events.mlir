// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-assign-events | FileCheck %s
// What is there already suffices.
// RUN: piper-opt %s --piper-assign-events -o %t.once
// RUN: piper-opt %t.once --piper-assign-events | diff %t.once -

piper.plan.kernel "make" [64] "w"
piper.plan.kernel "use" [64] "r"
piper.plan.kernel "both" [64, 64] "rw"
piper.plan.communicator @p2p [[0, 1]]

// CHECK-LABEL: piper.plan @class0
// CHECK-SAME: events 2
piper.plan @class0 ranks [0] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.stream @b
  piper.plan.stream @c

  // Two readers on another stream need one wait: the second knows what the first knows.
  // CHECK-LABEL: piper.plan.entry "same-stream"
  piper.plan.entry "same-stream" {
    piper.plan.buffer 0 "x" kind "activation" bytes 64
    // CHECK: launch "make" (buffer 0[0]) on @a
    // CHECK-NEXT: record [[E:[0-9]+]] on @a
    // CHECK-NEXT: launch "use" (buffer 0[0]) on @a
    // CHECK-NEXT: wait [[E]] on @b
    // CHECK-NEXT: launch "use" (buffer 0[0]) on @b
    // CHECK-NEXT: launch "use" (buffer 0[0]) on @b
    // CHECK-NEXT: }
    piper.plan.launch "make" (buffer 0[0]) on @a
    piper.plan.launch "use" (buffer 0[0]) on @a
    piper.plan.launch "use" (buffer 0[0]) on @b
    piper.plan.launch "use" (buffer 0[0]) on @b
  }

  // @c learns about @a through @b.
  // CHECK-LABEL: piper.plan.entry "transitive"
  piper.plan.entry "transitive" {
    piper.plan.buffer 0 "x" kind "activation" bytes 64
    piper.plan.buffer 1 "y" kind "activation" bytes 64
    // CHECK: launch "make"
    // CHECK-NEXT: record [[A:[0-9]+]] on @a
    // CHECK-NEXT: wait [[A]] on @b
    // CHECK-NEXT: launch "both"
    // CHECK-NEXT: record [[B:[0-9]+]] on @b
    // CHECK-NEXT: wait [[B]] on @c
    // CHECK-NEXT: launch "use" (buffer 1[0]) on @c
    // CHECK-NEXT: launch "use" (buffer 0[0]) on @c
    // CHECK-NEXT: }
    piper.plan.launch "make" (buffer 0[0]) on @a
    piper.plan.launch "both" (buffer 0[0], buffer 1[0]) on @b
    piper.plan.launch "use" (buffer 1[0]) on @c
    piper.plan.launch "use" (buffer 0[0]) on @c
  }

  // A writer waits for readers; bytes that do not overlap are independent.
  // CHECK-LABEL: piper.plan.entry "write-after-read"
  piper.plan.entry "write-after-read" {
    // CHECK: launch "use" (state[0]) on @a
    // CHECK-NEXT: record [[R:[0-9]+]] on @a
    // CHECK-NEXT: launch "make" (state[64]) on @c
    // CHECK-NEXT: wait [[R]] on @b
    // CHECK-NEXT: fill_zero state[32] bytes 16 on @b
    // CHECK-NEXT: launch "use" (state[64]) on @c
    piper.plan.launch "use" (state[0]) on @a
    piper.plan.launch "make" (state[64]) on @c
    piper.plan.fill_zero state[32] bytes 16 on @b
    piper.plan.launch "use" (state[64]) on @c
  }

  // A message's source is free once it is acknowledged, not once it is sent.
  // CHECK-LABEL: piper.plan.entry "message"
  piper.plan.entry "message" {
    // CHECK: send state[0] bytes 64 through @p2p on @a
    // CHECK-NEXT: release 0 of @p2p on @a
    // CHECK-NEXT: fill_zero state[0] bytes 64 on @a
    // CHECK-NEXT: record
    piper.plan.send state[0] bytes 64 through @p2p on @a position 0
    piper.plan.fill_zero state[0] bytes 64 on @a position 2
    // Whoever comes after that knows of the acknowledgement.
    // CHECK-NEXT: wait
    // CHECK-NEXT: fill_zero state[0] bytes 64 on @b
    piper.plan.fill_zero state[0] bytes 64 on @b position 3
  }

  // All members of a group together read every part: a stride covers all positions.
  // CHECK-LABEL: piper.plan.entry "stride"
  piper.plan.entry "stride" {
    // CHECK: launch "use" (state[0 + @p2p * 64]) on @a
    // CHECK-NEXT: record [[S:[0-9]+]] on @a
    // CHECK-NEXT: wait [[S]] on @b
    // CHECK-NEXT: fill_zero state[64] bytes 64 on @b
    piper.plan.launch "use" (state[0 + @p2p * 64]) on @a
    piper.plan.fill_zero state[64] bytes 64 on @b
  }
}

piper.plan @class1 ranks [1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "message" {
    piper.plan.recv state[0] bytes 64 through @p2p on @a position 1
  }
}
