// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-verify-planned -split-input-file -verify-diagnostics

// A copy may run before what it copies is there.
piper.plan.kernel "f" [64] "w"
piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.stream @copy
  piper.plan.entry "step" {
    // expected-note @+1 {{the other action}}
    piper.plan.launch "f" (arena[0]) on @compute label "F MB=0"
    // expected-error @+1 {{race: piper.plan.copy on @copy may run before "F MB=0" on @compute is done with the same memory}}
    piper.plan.copy arena[64], arena[0] bytes 64 on @copy
  }
}

// -----

// The source of a message is overwritten before the receiver has it.
piper.plan.kernel "f" [64] "w"
piper.plan.communicator @p2p [[0, 1]]
piper.plan @class0 ranks [0] arena 64 state 0 scalar 0 peak 64 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.launch "f" (arena[0]) on @compute
    // expected-note @+1 {{the other action}}
    piper.plan.send arena[0] bytes 64 through @p2p on @compute label "send"
    // expected-error @+1 {{race: piper.plan.launch on @compute may run before "send" on @compute is done}}
    piper.plan.launch "f" (arena[0]) on @compute
  }
}
piper.plan @class1 ranks [1] arena 64 state 0 scalar 0 peak 64 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.recv arena[0] bytes 64 through @p2p on @compute
  }
}

// -----

piper.plan.kernel "f" [64] "r"
piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.fill_zero arena[0] bytes 32 on @compute
    // expected-error @+1 {{reads bytes 0 to 64 of the arena, which nothing has written}}
    piper.plan.launch "f" (arena[0]) on @compute
  }
}

// -----

piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-note @+1 {{the other buffer}}
    piper.plan.buffer 0 "x" kind "saved" bytes 64 at 0 live 0 to 1
    // expected-error @+1 {{overlaps buffer 0 while both are live}}
    piper.plan.buffer 1 "y" kind "saved" bytes 64 at 32 live 1 to 1
    piper.plan.fill_zero arena[0] bytes 32 on @compute
    piper.plan.fill_zero arena[32] bytes 32 on @compute
  }
}

// -----

piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.buffer 0 "x" kind "saved" bytes 64 at 0 live 0 to 0
    piper.plan.fill_zero arena[0] bytes 64 on @compute
    // expected-error @+1 {{uses bytes 0 to 32 of the arena, where no buffer is live}}
    piper.plan.fill_zero arena[0] bytes 32 on @compute
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a place in the arena}}
    piper.plan.buffer 0 "x" kind "saved" bytes 64
    piper.plan.fill_zero buffer 0[0] bytes 64 on @compute
  }
}

// -----

piper.plan.communicator @p2p [[0, 1]]
piper.plan @class0 ranks [0] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    piper.plan.send state[0] bytes 64 through @p2p on @comm
    // expected-error @+1 {{expected a receive for message 1 of @p2p at ranks [0]}}
    piper.plan.send state[0] bytes 64 through @p2p on @comm
  }
}
piper.plan @class1 ranks [1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    piper.plan.recv state[0] bytes 64 through @p2p on @comm
  }
}

// -----

piper.plan.communicator @p2p [[0, 1]]
piper.plan @class0 ranks [0] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-error @+1 {{expected message 0 of @p2p to have equal bytes and condition at both ends}}
    piper.plan.send state[0] bytes 64 through @p2p on @comm
  }
}
piper.plan @class1 ranks [1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-note @+1 {{the other end: recv of ranks [1] on @comm}}
    piper.plan.recv state[0] bytes 32 through @p2p on @comm
  }
}

// -----

// Two collectives in another order on one of three ranks.
piper.plan.communicator @dp [[0, 1, 2]]
piper.plan @class0 ranks [0, 1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-note @+1 {{all_reduce "first" of ranks [0, 1] on @comm}}
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 8 over @dp on @comm label "first"
    piper.plan.all_reduce max state[0] to state[0] : f32 count 8 over @dp on @comm label "second"
  }
}
piper.plan @class1 ranks [2] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-error @+1 {{expected all members of @dp to issue the same collectives in one order, ranks [2] and ranks [0, 1] differ in number 0}}
    piper.plan.all_reduce max state[0] to state[0] : f32 count 8 over @dp on @comm label "second"
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 8 over @dp on @comm label "first"
  }
}

// -----

piper.plan.communicator @dp [[0, 1]]
piper.plan @class0 ranks [0, 1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-note @+1 {{first used here}}
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 8 over @dp on @comm
    // expected-error @+1 {{expected one stream for @dp, got @comm and @compute}}
    piper.plan.all_reduce sum state[32] to state[32] : f32 count 8 over @dp on @compute
  }
}

// -----

// Each rank first waits for the other's message.
piper.plan.communicator @down [[0, 1]]
piper.plan.communicator @up [[1, 0]]
piper.plan @class0 ranks [0] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-error @+2 {{deadlock: recv "recv up" of ranks [0] on @comm waits for itself}}
    // expected-note @+1 {{waits for recv "recv up" of ranks [0] on @comm}}
    piper.plan.recv state[0] bytes 8 through @up on @comm label "recv up"
    // expected-note @+1 {{waits for send "send down" of ranks [0] on @comm}}
    piper.plan.send state[8] bytes 8 through @down on @comm label "send down"
  }
}
piper.plan @class1 ranks [1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-note @+1 {{waits for recv "recv down" of ranks [1] on @comm}}
    piper.plan.recv state[0] bytes 8 through @down on @comm label "recv down"
    // expected-note @+1 {{waits for send "send up" of ranks [1] on @comm}}
    piper.plan.send state[8] bytes 8 through @up on @comm label "send up"
  }
}

// -----

// Both send first: fine only if sends don't wait.
piper.plan.communicator @down [[0, 1]]
piper.plan.communicator @up [[1, 0]]
piper.plan @class0 ranks [0] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-error @+2 {{deadlock if sends wait for receives: send of ranks [0] on @comm waits for itself}}
    // expected-note @+1 {{waits for send of ranks [0] on @comm}}
    piper.plan.send state[8] bytes 8 through @down on @comm
    // expected-note @+1 {{waits for recv of ranks [0] on @comm}}
    piper.plan.recv state[0] bytes 8 through @up on @comm
  }
}
piper.plan @class1 ranks [1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    piper.plan.send state[8] bytes 8 through @up on @comm
    piper.plan.recv state[0] bytes 8 through @down on @comm
  }
}

// -----

// A collective that one member issues behind a message that the other sends behind the collective.
piper.plan.communicator @dp [[0, 1]]
piper.plan.communicator @down [[0, 1]]
piper.plan @class0 ranks [0] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-error @+2 {{deadlock: all_reduce of ranks [0] on @comm waits for itself}}
    // expected-note @+1 {{waits for all_reduce of ranks [0] on @comm}}
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 8 over @dp on @comm
    // expected-note @+1 {{waits for send of ranks [0] on @comm}}
    piper.plan.send state[32] bytes 8 through @down on @comm
  }
}
piper.plan @class1 ranks [1] arena 0 state 64 scalar 0 peak 0 events 0 {
  piper.plan.stream @comm
  piper.plan.entry "step" {
    // expected-note @+1 {{waits for recv of ranks [1] on @comm}}
    piper.plan.recv state[32] bytes 8 through @down on @comm
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 8 over @dp on @comm
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a kernel with 0 pointers, got "f"}}
    piper.plan.launch "f" () on @compute
  }
}

// -----

// expected-error @+1 {{expected plans instead of graphs in the planned phase}}
piper.graph @step rows 2 {
  %0 = piper.input "args.0" 0 : tensor<2xf32>
  piper.return %0 : tensor<2xf32>
}

// -----

piper.plan.kernel "f" [64, 64] "rw"
piper.plan @class0 ranks [0] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-error @+1 {{expected pointer 1 to have memory of its own, got an overlap with pointer 0}}
    piper.plan.launch "f" (state[0], state[32]) on @compute
  }
}
