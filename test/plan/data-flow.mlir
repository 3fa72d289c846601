// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-verify-planned -split-input-file -verify-diagnostics -o /dev/null
//
// What an action reads has the writers that partition noted, and a message is the one that its receive is for.

// Two messages of one shape are crossed.
piper.plan.kernel "f" [64] "w"
piper.plan.communicator @p2p [[0, 1]]
piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" attributes {results = array<i64>} {
    piper.plan.buffer 0 "F MB=0" kind "activation" bytes 64 at 0 live 0 to 3
    piper.plan.buffer 1 "F MB=1" kind "activation" bytes 64 at 64 live 1 to 2
    piper.plan.launch "f" (arena[0]) on @compute label "F MB=0" position 0
    piper.plan.launch "f" (arena[64]) on @compute label "F MB=1" position 1
    // expected-error @+1 {{expected to read what "F MB=0" at position 0 wrote, got what "F MB=1" at position 1 wrote}}
    piper.plan.send arena[64] bytes 64 through @p2p on @compute label "send F MB=0" position 2 {sources = array<i64: 0, 0, 0>}
    piper.plan.send arena[0] bytes 64 through @p2p on @compute label "send F MB=1" position 3 {sources = array<i64: 1, 0, 0>}
  }
}
piper.plan @class1 ranks [1] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.recv arena[0] bytes 64 through @p2p on @compute
    piper.plan.recv arena[64] bytes 64 through @p2p on @compute
  }
}

// -----

// Two sends are swapped: each message is whole, and arrives in the place of the other.
piper.plan.communicator @p2p [[0, 1]]
piper.plan @class0 ranks [0] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-error @+1 {{expected message 0 of @p2p to be the one that the receive is for}}
    piper.plan.send state[64] bytes 64 through @p2p on @compute position 3
    piper.plan.send state[0] bytes 64 through @p2p on @compute position 2
  }
}
piper.plan @class1 ranks [1] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-note @+1 {{the other end}}
    piper.plan.recv arena[0] bytes 64 through @p2p on @compute position 4 {sources = array<i64: 2>}
    piper.plan.recv arena[64] bytes 64 through @p2p on @compute position 5 {sources = array<i64: 3>}
  }
}

// -----

// One class reduces what belongs to two parameters in another order; both have as many elements.
piper.plan.communicator @dp [[0, 1]]
piper.plan @class0 ranks [0] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-note @+1 {{all_reduce}}
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 16 over @dp on @compute position 7
    piper.plan.all_reduce sum state[64] to state[64] : f32 count 16 over @dp on @compute position 8
  }
}
piper.plan @class1 ranks [1] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    // expected-error @+1 {{expected all members of @dp to issue the same collectives in one order, ranks [1] and ranks [0] differ in number 0}}
    piper.plan.all_reduce sum state[64] to state[64] : f32 count 16 over @dp on @compute position 8
    piper.plan.all_reduce sum state[0] to state[0] : f32 count 16 over @dp on @compute position 7
  }
}

// -----

// The sum over replicas is left out of both of them.
piper.plan.kernel "update" [64, 64] "xr"
piper.plan @class0 ranks [0, 1] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" attributes {results = array<i64: 1, 0, 64, 9, 0, 0, 1, 64, 128, 7, 0, 0, 8, 1, 0>} {
    piper.plan.fill_zero state[64] bytes 64 on @compute label "gradient" position 7
    // expected-error @+1 {{expected to read what position 8 wrote, got what nothing wrote}}
    piper.plan.launch "update" (state[0], state[64]) on @compute when "update" position 9 {sources = array<i64: 7, 0, 0, 8, 1, 0>}
  }
}

// -----

// The last one of a sum is left out, and nothing in the run reads it.
piper.plan @class0 ranks [0] arena 0 state 128 scalar 0 peak 0 events 0 {
  piper.plan.stream @compute
  // expected-error @+1 {{expected to leave in states and scalars what the graph does}}
  piper.plan.entry "step" attributes {results = array<i64: 1, 0, 64, 4, 0, 0>} {
    piper.plan.fill_zero state[0] bytes 64 on @compute position 3
  }
}

// -----

// The second gather comes late, and gives what is there already.
piper.plan.kernel "f" [64, 64] "rw"
piper.plan.communicator @dp [[0, 1]]
piper.plan @class0 ranks [0, 1] arena 128 state 32 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" attributes {results = array<i64>} {
    piper.plan.buffer 0 "w" kind "parameter" bytes 64 at 0 live 0 to 3
    piper.plan.buffer 1 "F" kind "activation" bytes 64 at 64 live 1 to 2
    piper.plan.all_gather state[0] to arena[0] : f32 count 8 over @dp on @compute position 1
    piper.plan.launch "f" (arena[0], arena[64]) on @compute position 2 {sources = array<i64: 1, 1, 0>}
    piper.plan.launch "f" (arena[0], arena[64]) on @compute position 4 {sources = array<i64: 1, 1, 0>}
    piper.plan.all_gather state[0] to arena[0] : f32 count 8 over @dp on @compute position 3
  }
}
