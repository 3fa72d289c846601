// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

// Every constraint of PiperCollectiveOps.td.

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.all_reduce sum %v : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.all_reduce sum %v on [] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
  %r, %t = piper.all_reduce sum %v on [0, 1] stream @dp : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.reduce_scatter sum %v : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.reduce_scatter sum %v on [] : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
  %r, %t = piper.reduce_scatter sum %v on [0, 1] stream @dp : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.all_gather %v : tensor<8xf32> -> tensor<16xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.all_gather %v on [] : tensor<8xf32> -> tensor<16xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
  %r, %t = piper.all_gather %v on [0, 1] stream @dp : tensor<8xf32> -> tensor<16xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.broadcast %v root 0 : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.broadcast %v root 0 on [] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
  %r, %t = piper.broadcast %v root 0 on [0, 1] stream @dp : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.all_to_all %v : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.all_to_all %v on [] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
  %r, %t = piper.all_to_all %v on [0, 1] stream @dp : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected operand and result of one type, got 'tensor<8xf32>' and 'tensor<4xf32>'}}
  %r, %t = piper.all_reduce sum %v on [0, 1] : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<?xf32>
  // expected-error @+1 {{expected a static shape, got 'tensor<?xf32>'}}
  %r, %t = piper.all_reduce sum %v on [0, 1] : tensor<?xf32> -> tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected 2 parts of 8 elements, got 8 elements}}
  %r, %t = piper.reduce_scatter sum %v on [0, 1] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected one element type, got 'f32' and 'f64'}}
  %r, %t = piper.reduce_scatter sum %v on [0, 1] : tensor<8xf32> -> tensor<4xf64>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<2x4xf32>
  // expected-error @+1 {{expected vectors of static length, got 'tensor<2x4xf32>'}}
  %r, %t = piper.reduce_scatter sum %v on [0, 1] : tensor<2x4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected vectors of static length, got 'tensor<?xf32>'}}
  %r, %t = piper.reduce_scatter sum %v on [0, 1] : tensor<8xf32> -> tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected 2 parts of 8 elements, got 8 elements}}
  %r, %t = piper.all_gather %v on [0, 1] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected one element type, got 'i32' and 'f32'}}
  %r, %t = piper.all_gather %v on [0, 1] : tensor<8xf32> -> tensor<16xi32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<?xf32>
  // expected-error @+1 {{expected vectors of static length, got 'tensor<?xf32>'}}
  %r, %t = piper.all_gather %v on [0, 1] : tensor<?xf32> -> tensor<16xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a root from 0 to 1, got 2}}
  %r, %t = piper.broadcast %v root 2 on [0, 1] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a root from 0 to 1, got -1}}
  %r, %t = piper.broadcast %v root -1 on [0, 1] : tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected operand and result of one type, got 'tensor<8xf32>' and 'tensor<4xf32>'}}
  %r, %t = piper.broadcast %v root 0 on [0, 1] : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<?xf32>
  // expected-error @+1 {{expected a static shape, got 'tensor<?xf32>'}}
  %r, %t = piper.broadcast %v root 0 on [0, 1] : tensor<?xf32> -> tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<f32>
  // expected-error @+1 {{expected a leading dimension, got 'tensor<f32>'}}
  %r, %t = piper.all_to_all %v on [0, 1] : tensor<f32> -> tensor<f32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<3xf32>
  // expected-error @+1 {{expected a leading dimension that is a multiple of 2, got 3}}
  %r, %t = piper.all_to_all %v on [0, 1] : tensor<3xf32> -> tensor<3xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected operand and result of one type, got 'tensor<4xf32>' and 'tensor<2xf32>'}}
  %r, %t = piper.all_to_all %v on [0, 1] : tensor<4xf32> -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %m, %s = piper.send %v to [1] : tensor<?xf32>
  %r, %t = piper.recv %m on [1] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected 0 <= microbatch < num_microbatches, got 2 of 2}}
  %m, %s = piper.send %v on [0] to [1] microbatch 2 of 2 : tensor<?xf32>
  %r, %t = piper.recv %m on [1] from [0] microbatch 2 of 2 : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected tag "MB" to be an index of at least 0 or unit, got "one"}}
  %m, %s = piper.send %v on [0] to [1] tags {MB = "one"} : tensor<?xf32>
  %r, %t = piper.recv %m on [1] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected as many receivers as senders, got 1 of 2}}
  %m, %s = piper.send %v on [0, 1] to [2] : tensor<?xf32>
  %r, %t = piper.recv %m on [2] from [0, 1] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected two groups without a common rank, got 1 in both}}
  %m, %s = piper.send %v on [0, 1] to [1, 2] : tensor<?xf32>
  %r, %t = piper.recv %m on [1, 2] from [0, 1] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected ranks from 0 to 3, got 7}}
  %m, %s = piper.send %v on [0] to [7] : tensor<?xf32>
  %r, %t = piper.recv %m on [7] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected @pp to name a piper.stream, got no such symbol}}
  %m, %s = piper.send %v on [0] to [1] stream @pp : tensor<?xf32>
  %r, %t = piper.recv %m on [1] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected one piper.recv of the message, got none}}
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected one piper.recv of the message, got a second}}
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-note @+1 {{a receive is here}}
  %r, %t = piper.recv %m on [1] from [0] : tensor<?xf32>
  %q, %u = piper.recv %m on [1] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected only a piper.recv to use the message, got builtin.unrealized_conversion_cast}}
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-note @+1 {{the other use is here}}
  %c = builtin.unrealized_conversion_cast %m : !piper.message to i1
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %c = builtin.unrealized_conversion_cast to i1
  // expected-error @+1 {{operand #0 must be ranked tensor of any type values or values that a forward saves for its backward, as one value, but got 'i1'}}
  %m, %s = piper.send %c on [0] to [1] : i1
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %v = piper.input "v" 0 : tensor<f32>
  // expected-error @+1 {{expected a device group, got none}}
  %m, %s = piper.send %v to [1] : tensor<f32>
  %r, %t = piper.recv %m on [1] from [0] : tensor<f32>
  %both = piper.pack () : () -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-error @+1 {{expected a device group, got none}}
  %r, %t = piper.recv %m from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-error @+1 {{expected tag "MB" to be an index of at least 0 or unit, got "one"}}
  %r, %t = piper.recv %m on [1] from [0] tags {MB = "one"} : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  %m = builtin.unrealized_conversion_cast to !piper.message
  // expected-error @+1 {{expected the message of a piper.send, got another}}
  %r, %t = piper.recv %m on [1] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-note @+1 {{the send is here}}
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-error @+1 {{expected the ranks that the message goes to, [1], got [2]}}
  %r, %t = piper.recv %m on [2] from [0] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-note @+1 {{the send is here}}
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-error @+1 {{expected the ranks that the message comes from, [0], got [2]}}
  %r, %t = piper.recv %m on [1] from [2] : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-note @+1 {{the send is here}}
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-error @+1 {{expected the type that is sent, 'tensor<?xf32>', got 'tensor<4xf32>'}}
  %r, %t = piper.recv %m on [1] from [0] : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  // expected-note @+1 {{the send is here}}
  %m, %s = piper.send %v on [0] to [1] microbatch 1 of 2 : tensor<?xf32>
  // expected-error @+1 {{expected the send's microbatch 1 of 2, got 0 of 2}}
  %r, %t = piper.recv %m on [1] from [0] microbatch 0 of 2 : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [4]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 split microbatch 1 of 2 : tensor<?xf32>
  %m, %s = piper.send %v on [0] to [1] : tensor<?xf32>
  // expected-error @+1 {{expected @pp to name a piper.stream, got no such symbol}}
  %r, %t = piper.recv %m on [1] from [0] stream @pp : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}
