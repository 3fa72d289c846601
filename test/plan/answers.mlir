// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-verify-planned -split-input-file -verify-diagnostics -o /dev/null
//
// What comes back from another rank tells that a message has arrived, as a release does.

// The second rank answers behind its receive, so the source is free when the answer is there.
piper.plan.kernel "f" [64] "w"
piper.plan.communicator @there [[0, 1]]
piper.plan.communicator @back [[1, 0]]
piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.launch "f" (arena[0]) on @compute
    piper.plan.send arena[0] bytes 64 through @there on @compute
    piper.plan.recv arena[64] bytes 64 through @back on @compute
    piper.plan.launch "f" (arena[0]) on @compute
  }
}
piper.plan @class1 ranks [1] arena 64 state 0 scalar 0 peak 64 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.recv arena[0] bytes 64 through @there on @compute
    piper.plan.send arena[0] bytes 64 through @back on @compute
  }
}

// -----

// It answers from another stream, which does not wait for what has come.
piper.plan.kernel "f" [64] "w"
piper.plan.communicator @there [[0, 1]]
piper.plan.communicator @back [[1, 0]]
piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.launch "f" (arena[0]) on @compute
    // expected-note @+1 {{the other action}}
    piper.plan.send arena[0] bytes 64 through @there on @compute label "send"
    piper.plan.recv arena[64] bytes 64 through @back on @compute
    // expected-error @+1 {{race: piper.plan.launch on @compute may run before "send" on @compute is done}}
    piper.plan.launch "f" (arena[0]) on @compute
  }
}
piper.plan @class1 ranks [1] arena 64 state 64 scalar 0 peak 64 events 0 {
  piper.plan.stream @compute
  piper.plan.stream @send
  piper.plan.entry "step" {
    piper.plan.recv arena[0] bytes 64 through @there on @compute
    piper.plan.send state[0] bytes 64 through @back on @send
  }
}

// -----

// An answer that not every run gives.
piper.plan.kernel "f" [64] "w"
piper.plan.communicator @there [[0, 1]]
piper.plan.communicator @back [[1, 0]]
piper.plan @class0 ranks [0] arena 128 state 0 scalar 0 peak 128 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.launch "f" (arena[0]) on @compute
    // expected-note @+1 {{the other action}}
    piper.plan.send arena[0] bytes 64 through @there on @compute label "send"
    piper.plan.recv arena[64] bytes 64 through @back on @compute when "reduce"
    // expected-error @+1 {{race: piper.plan.launch on @compute may run before "send" on @compute is done}}
    piper.plan.launch "f" (arena[0]) on @compute
  }
}
piper.plan @class1 ranks [1] arena 64 state 0 scalar 0 peak 64 events 0 {
  piper.plan.stream @compute
  piper.plan.entry "step" {
    piper.plan.recv arena[0] bytes 64 through @there on @compute
    piper.plan.send arena[0] bytes 64 through @back on @compute when "reduce"
  }
}
