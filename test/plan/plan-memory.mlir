// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-assign-events --piper-plan-memory | FileCheck %s
// RUN: piper-opt %s --piper-assign-events --piper-plan-memory --piper-verify-planned -o /dev/null

piper.plan.kernel "make" [1000] "w"
piper.plan.kernel "step" [1000, 1000] "rw"
piper.plan.kernel "use" [1000] "r"
piper.plan.communicator @down [[0, 1]]
piper.plan.communicator @up [[1, 0]]

// On one stream memory goes from hand to hand without waits; two are live at a time. Sizes are rounded to cache lines.
// CHECK-LABEL: piper.plan @chain ranks [2] arena 2048
// CHECK-SAME: peak 2024 events 0
piper.plan @chain ranks [2] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  // CHECK: peaks = {activation = 2000 : i64}
  piper.plan.entry "step" {
    // CHECK: buffer 0 "a" kind "activation" bytes 1000 at 0 live 0 to 1
    // CHECK: buffer 1 "b" kind "activation" bytes 1000 at 1024 live 1 to 2
    // CHECK: buffer 2 "c" kind "activation" bytes 1000 at 0 live 2 to 3
    piper.plan.buffer 0 "a" kind "activation" bytes 1000
    piper.plan.buffer 1 "b" kind "activation" bytes 1000
    piper.plan.buffer 2 "c" kind "activation" bytes 1000
    // Nothing uses it.
    // CHECK-NOT: buffer 3
    piper.plan.buffer 3 "d" kind "activation" bytes 1000
    piper.plan.launch "make" (buffer 0[0]) on @compute
    piper.plan.launch "step" (buffer 0[0], buffer 1[0]) on @compute
    // CHECK: launch "step" (arena[1024], arena[0]) on @compute
    piper.plan.launch "step" (buffer 1[0], buffer 2[0]) on @compute
    piper.plan.launch "use" (buffer 2[0]) on @compute
  }
}

// A transfer into memory that another stream used waits for that use, if this saves much.
// CHECK-LABEL: piper.plan @pool ranks [3] arena 2048
piper.plan @pool ranks [3] arena 0 state 3000 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.stream @copy
  piper.plan.entry "step" {
    piper.plan.buffer 0 "a" kind "parameter" bytes 1000
    piper.plan.buffer 1 "b" kind "parameter" bytes 1000
    piper.plan.buffer 2 "c" kind "parameter" bytes 1000
    piper.plan.copy buffer 0[0], state[0] bytes 1000 on @copy
    piper.plan.copy buffer 1[0], state[1000] bytes 1000 on @copy
    // CHECK: launch "use" (arena[0]) on @compute
    // CHECK-NEXT: record [[USED:[0-9]+]] on @compute
    // CHECK-NEXT: wait [[USED]] on @copy
    // CHECK-NEXT: copy arena[0], state[2000] bytes 1000 on @copy
    piper.plan.launch "use" (buffer 0[0]) on @compute
    piper.plan.copy buffer 2[0], state[2000] bytes 1000 on @copy
    piper.plan.launch "use" (buffer 1[0]) on @compute
    piper.plan.launch "use" (buffer 2[0]) on @compute
  }
}

// The kernel that comes right behind a transfer does not wait for it; the next one does.
// CHECK-LABEL: piper.plan @behind_transfer ranks [4] arena 2048
piper.plan @behind_transfer ranks [4] arena 0 state 3000 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.stream @copy
  piper.plan.entry "step" {
    piper.plan.buffer 0 "a" kind "gradient" bytes 1000
    piper.plan.buffer 1 "b" kind "gradient" bytes 1000
    piper.plan.buffer 2 "c" kind "gradient" bytes 1000
    piper.plan.launch "make" (buffer 0[0]) on @compute
    piper.plan.copy state[0], buffer 0[0] bytes 1000 on @copy
    // CHECK: copy state[0], arena[0]
    // CHECK-NEXT: record [[COPIED:[0-9]+]] on @copy
    // CHECK-NEXT: launch "make" (arena[1024]) on @compute
    piper.plan.launch "make" (buffer 1[0]) on @compute
    piper.plan.copy state[1000], buffer 1[0] bytes 1000 on @copy
    // CHECK: wait [[COPIED]] on @compute
    // CHECK-NEXT: launch "make" (arena[0]) on @compute
    piper.plan.launch "make" (buffer 2[0]) on @compute
    piper.plan.copy state[2000], buffer 2[0] bytes 1000 on @copy
  }
}

// Memory of a message serves again where its receiver comes before in the order of the cluster, and only there.
// CHECK-LABEL: piper.plan @sender ranks [0] arena 2048
piper.plan @sender ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.buffer 0 "a" kind "activation" bytes 1000
    piper.plan.buffer 1 "b" kind "activation" bytes 1000
    piper.plan.buffer 2 "c" kind "activation" bytes 1000
    piper.plan.launch "make" (buffer 0[0]) on @compute position 0
    piper.plan.send buffer 0[0] bytes 1000 through @down on @compute position 1
    // CHECK: send arena[0]
    // CHECK-NEXT: launch "make" (arena[1024])
    piper.plan.launch "make" (buffer 1[0]) on @compute position 2
    piper.plan.launch "use" (buffer 1[0]) on @compute position 4
    // CHECK: launch "use" (arena[1024])
    // CHECK-NOT: release
    // CHECK: launch "make" (arena[1024])
    piper.plan.launch "make" (buffer 2[0]) on @compute position 5
    piper.plan.send buffer 2[0] bytes 1000 through @down on @compute position 6
  }
}

piper.plan @receiver ranks [1] arena 0 state 2000 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.recv state[0] bytes 1000 through @down on @compute position 3
    piper.plan.recv state[1000] bytes 1000 through @down on @compute position 7
  }
}
