// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

// Every constraint of PiperDirectiveOps.td.

// expected-error @+1 {{expected a block without arguments, got 1}}
piper.strategy @strategy {
^bb0(%x: i1):
}

// -----

// expected-error @+1 {{expected directives only, got builtin.unrealized_conversion_cast}}
piper.strategy @strategy {
  // expected-note @+1 {{the operation is here}}
  %x = builtin.unrealized_conversion_cast to i1
}

// -----

// expected-note @+1 {{the first is here}}
piper.strategy @one {
}
// expected-error @+1 {{expected at most one in a module, got a second}}
piper.strategy @two {
}

// -----

// expected-error @+1 {{expects parent op 'piper.strategy'}}
piper.split {} "MB" into 2

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0, "*" or unit, got -1 : i64}}
  piper.split {stage = -1} "MB" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0, "*" or unit, got "all"}}
  piper.split {stage = "all"} "MB" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0, "*" or unit, got 0 : i32}}
  piper.split {stage = 0 : i32} "MB" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected PASS = F, B, I, W, BI or BW, got "C"}}
  piper.split {PASS = "C"} "MB" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected PASS = F, B, I, W, BI or BW, got 0 : i64}}
  piper.split {PASS = 0} "MB" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0, "*" or unit, got -1 : i64}}
  piper.place {stage = -1} on [0] stream "pp"
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected PASS = F, B, I, W, BI or BW, got "*"}}
  piper.replicate {PASS = "*"} on [0]
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected tag "MB" to be an index of at least 0, "*" or unit, got "x"}}
  piper.order [[{MB = "x"}], [{}]]
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a dim_name other than "" and "PASS", got ""}}
  piper.split {} "" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a dim_name other than "" and "PASS", got "PASS"}}
  piper.split {} "PASS" into 2
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected at least 1 microbatch, got 0}}
  piper.split {} "MB" into 0
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected at least one rank, got []}}
  piper.place {} on [] stream "pp"
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected distinct ranks, got 1 twice}}
  piper.place {} on [1, 2, 1] stream "pp"
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected ranks from 0 to 3, got 4}}
  piper.place {} on [0, 4] stream "pp"
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected ranks from 0 to 3, got -1}}
  piper.place {} on [-1] stream "pp"
}

// -----

piper.strategy @strategy {
  // expected-error @+1 {{expected a piper.mesh in the module, got ranks [0] without one}}
  piper.place {} on [0] stream "pp"
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected at least one rank, got []}}
  piper.replicate {} on []
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected distinct ranks, got 1 twice}}
  piper.replicate {} on [1, 2, 1]
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected ranks from 0 to 3, got 4}}
  piper.replicate {} on [0, 4]
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected ranks from 0 to 3, got -1}}
  piper.replicate {} on [-1]
}

// -----

piper.strategy @strategy {
  // expected-error @+1 {{expected a piper.mesh in the module, got ranks [0] without one}}
  piper.replicate {} on [0]
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a name for stream, got ""}}
  piper.place {} on [0] stream ""
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a name for gather_stream, got ""}}
  piper.replicate {} on [0] gather_stream ""
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a name for reduce_stream, got ""}}
  piper.replicate {} on [0] reduce_stream ""
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a positive and finite bucket_size, got 0.000000e+00 : f64}}
  piper.replicate {} on [0] {bucket_size = 0.0 : f64}
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a positive and finite bucket_size, got 0x7FF0000000000000 : f64}}
  piper.replicate {} on [0] {bucket_size = 0x7FF0000000000000 : f64}
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a positive and finite bucket_size, got 0x7FF8000000000000 : f64}}
  piper.replicate {} on [0] {bucket_size = 0x7FF8000000000000 : f64}
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected shard_optimizer with shard_grads, got shard_grads alone}}
  piper.replicate {} on [0] {shard_grads}
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected shard_grads with shard_params, got shard_params without it}}
  piper.replicate {} on [0] {shard_params, shard_optimizer}
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected at least two groups, got 1}}
  piper.order [[{}]]
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected groups of at least one filter, got []}}
  piper.order [[{}], []]
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected groups of at least one filter, got {}}}
  piper.order [[{}], {}]
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.strategy @strategy {
  // expected-error @+1 {{expected a filter {tag = index, ...}, got "F"}}
  piper.order [[{}], ["F"]]
}
