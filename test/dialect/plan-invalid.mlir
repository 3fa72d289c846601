// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected at least one group}}
piper.plan.communicator @a []

// -----

// expected-error @+1 {{expected at least one rank}}
piper.plan.communicator @a [[0], []]

// -----

// expected-error @+1 {{expected distinct ranks, got 1 twice}}
piper.plan.communicator @a [[0, 1], [1, 2]]

// -----

// expected-error @+1 {{expected one access letter per pointer, got 1 letters and 2 pointers}}
piper.plan.kernel "f" [64, 64] "r"

// -----

// expected-error @+1 {{expected access letters r, w and x, got "rz"}}
piper.plan.kernel "f" [64, 64] "rz"

// -----

// expected-error @+1 {{expected pointer bytes of at least 0, got -1}}
piper.plan.kernel "f" [-1] "r"

// -----

// expected-error @+1 {{expected a ranked tensor of static shape, got 'tensor<?xf32>'}}
piper.plan.state "w" parameter : tensor<?xf32> []

// -----

// expected-error @+1 {{expected a segment in the arena or state space, got input}}
piper.plan.state "w" parameter : tensor<4xf32> [#piper.segment<@class0 input at 0 element 0 count 4>]

// -----

// expected-error @+1 {{expected positive counts}}
piper.plan.state "w" parameter : tensor<4xf32> [#piper.segment<@class0 state at 0 element 0 count 0>]

// -----

// expected-error @+1 {{expected at least one row, got 0}}
piper.plan.input "x" : f32 rows 0 row_bytes 4

// -----

// expected-error @+1 {{expected f32, f64, i32 or i64, got 'bf16'}}
piper.plan.scalar "lr" : bf16 at 0

// -----

// expected-error @+1 {{expected an offset that is a multiple of 8, got 4}}
piper.plan.scalar "lr" : f64 at 4

// -----

// expected-error @+1 {{expected a ranked tensor of static shape, got 'f32'}}
piper.plan.output "loss" : f32 of @class0 scalar[0]

// -----

// expected-error @+1 {{expected a peak of at most 4, got 8}}
piper.plan @class0 ranks [0] arena 4 state 0 scalar 0 peak 8 events 0 {
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  // expected-error @+1 {{expected distinct streams}}
  piper.plan.stream @a
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  // expected-error @+1 {{expected workspace of at least 0, got -1}}
  piper.plan.stream @a workspace -1
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.entry "step" {
  }
  // expected-error @+1 {{expected distinct entries}}
  piper.plan.entry "step" {
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a stream of the class, got @a}}
    piper.plan.fill_zero arena[0] bytes 4 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 1 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected an event below 1, got 1}}
    piper.plan.record 1 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 1 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a record of event 0 before its wait}}
    piper.plan.wait 0 on @a
    piper.plan.record 0 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 1 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    piper.plan.record 0 on @a
    // expected-error @+1 {{expected one record of event 0}}
    piper.plan.record 0 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    piper.plan.buffer 0 "x" kind "saved" bytes 4
    // expected-error @+1 {{expected distinct buffer numbers, got 0 twice}}
    piper.plan.buffer 0 "y" kind "saved" bytes 4
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.entry "step" {
    // expected-error @+1 {{expected 0 <= first <= last, got 3 and 2}}
    piper.plan.buffer 0 "x" kind "saved" bytes 4 at 0 live 3 to 2
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a number of at least 0 and positive bytes}}
    piper.plan.buffer 0 "x" kind "saved" bytes 0
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected bytes to be positive, got 0}}
    piper.plan.copy arena[0], arena[4] bytes 0 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected an address of at least 0}}
    piper.plan.fill_zero arena[-4] bytes 4 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a floating-point type, got 'i32'}}
    piper.plan.accumulate "add" arena[0], arena[4] : i32 count 1 on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected count to be positive, got 0}}
    piper.plan.all_gather arena[0] to arena[4] : f32 count 0 over @dp on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected a message of at least 0, got -1}}
    piper.plan.release -1 of @dp on @a
  }
}

// -----

piper.plan @class0 ranks [0] arena 0 state 0 scalar 0 peak 0 events 0 {
  piper.plan.stream @a
  piper.plan.entry "step" {
    // expected-error @+1 {{expected an address space, got heap}}
    piper.plan.fill_zero heap[0] bytes 4 on @a
  }
}
