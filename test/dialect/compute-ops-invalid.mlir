// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

// Every constraint of PiperComputeOps.td.

// expected-error @+1 {{expected a block without arguments, got 1}}
piper.graph @step rows 4 {
^bb0(%x: tensor<2xf32>):
  piper.return %x : tensor<2xf32>
}

// -----

// expected-error @+1 {{expects a non-empty block}}
piper.graph @step rows 4 {
}

// -----

// expected-error @+1 {{expected to end in piper.return, got llvm.unreachable}}
piper.graph @step rows 4 {
  llvm.unreachable
}

// -----

// expected-error @+1 {{attribute 'rows' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
piper.graph @step rows 0 {
  %both = piper.pack () : () -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-note @+1 {{the first is here}}
  %a = piper.input "args.0" 0 split : tensor<?xf32>
  // expected-error @+1 {{expected inputs of index 0 to agree in name and split, got "args.1" and "args.0"}}
  %b = piper.input "args.1" 0 split : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-note @+1 {{the first is here}}
  %a = piper.input "args.0" 0 split : tensor<?xf32>
  // expected-error @+1 {{expected inputs of index 0 to agree in name and split, got "args.0" and "args.0"}}
  %b = piper.input "args.0" 0 : tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @mean : tensor<4xf32> buffer ["mean"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @mean : tensor<4xf32>
  // expected-note @+1 {{the first is here}}
  piper.write @mean, %v : tensor<4xf32>
  // expected-error @+1 {{expected one write of @mean, got a second}}
  piper.write @mean, %v : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @w : tensor<4xf32>
  // expected-note @+1 {{the first is here}}
  %a, %t0 = piper.accumulate @w (%v) on [0] : tensor<4xf32> -> tensor<4xf32>
  %b, %t1 = piper.accumulate @w (%v) on [1] : tensor<4xf32> -> tensor<4xf32>
  // expected-error @+1 {{expected one accumulate of @w per device group, got a second}}
  %c, %t2 = piper.accumulate @w (%v) on [0] : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @w : tensor<4xf32>
  // expected-error @+1 {{expected at least one rank, got []}}
  %s, %t = piper.accumulate (%v) on [] : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @w : tensor<4xf32>
  // expected-error @+1 {{expected a piper.mesh in the module, got ranks [0] without one}}
  %s, %t = piper.accumulate (%v) on [0] : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @w : tensor<4xf32>
  // expected-error @+1 {{expected ranks from 0 to 1, got 2}}
  %s, %t = piper.accumulate (%v) on [2] : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @w : tensor<4xf32>
  // expected-error @+1 {{expected ranks from 0 to 1, got -1}}
  %s, %t = piper.accumulate (%v) on [-1] : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.read @w : tensor<4xf32>
  // expected-error @+1 {{expected distinct ranks, got 0 twice}}
  %s, %t = piper.accumulate (%v) on [0, 0] : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.graph @step rows 4 {
  // expected-error @+1 {{expected distinct ranks, got 0 twice}}
  %both = piper.pack () on [0, 0] : () -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %v = piper.input "x" 0 : tensor<f32>
  // expected-error @+1 {{expected (tensor<f32>, tensor<f32>) or (tensor<2xf32>), got ('tensor<f32>')}}
  piper.return %v : tensor<f32>
}

// -----

piper.graph @step rows 4 {
  %v = piper.input "x" 0 : tensor<3xf32>
  // expected-error @+1 {{expected (tensor<f32>, tensor<f32>) or (tensor<2xf32>), got ('tensor<3xf32>')}}
  piper.return %v : tensor<3xf32>
}

// -----

piper.graph @step rows 4 {
  %v = piper.input "x" 0 : tensor<f64>
  // expected-error @+1 {{expected (tensor<f32>, tensor<f32>) or (tensor<2xf32>), got ('tensor<f64>', 'tensor<f64>')}}
  piper.return %v, %v : tensor<f64>, tensor<f64>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{attribute 'index' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative}}
  %x = piper.input "x" -1 : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected 0 <= microbatch < num_microbatches, got 2 of 2}}
  %x = piper.input "x" 0 split microbatch 2 of 2 : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected 0 <= microbatch < num_microbatches, got -1 of 2}}
  %x = piper.input "x" 0 split microbatch -1 of 2 : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected microbatch 0 of 1 where split is absent, got 0 of 2}}
  %x = piper.input "x" 0 microbatch 0 of 2 : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected a dimension 0 to split, got 'tensor<f32>'}}
  %x = piper.input "x" 0 split : tensor<f32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-error @+1 {{expects parent op 'piper.graph'}}
%x = piper.input "x" 0 : tensor<4xf32>

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{expects parent op 'piper.graph'}}
  %s, %t = piper.accumulate (%x) : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected @w to name a piper.state or piper.bucket, got no such symbol}}
  %v = piper.read @w : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{it names a piper.stream}}
piper.stream @w
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected @w to name a piper.state or piper.bucket}}
  %v = piper.read @w : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected a value of 'tensor<4xf32>', got 'tensor<5xf32>'}}
  %v = piper.read @w : tensor<5xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected a value of 'tensor<8xf32>', got 'tensor<4xf32>'}}
  %v = piper.read @bucket0 : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd {shard_params, shard_grads, shard_optimizer}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected a value of 'tensor<4xf32>', got 'tensor<8xf32>'}}
  %v = piper.read @bucket0 : tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected @mean to name a piper.state or piper.bucket, got no such symbol}}
  piper.write @mean, %v : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a state of kind buffer, got a parameter}}
  piper.write @w, %v : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the state is here}}
piper.state @mean : tensor<4xf32> buffer ["mean"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<5xf32>
  // expected-error @+1 {{expected a value of 'tensor<4xf32>', got 'tensor<5xf32>'}}
  piper.write @mean, %v : tensor<5xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a value of 'tensor<8xf32>', got 'tensor<4xf32>'}}
  piper.write @bucket0, %v : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @mean : tensor<4xf32> buffer ["mean"]
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@mean] offsets [0] elements 4 padded 6 ranks [0, 1]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<2xf32>
  // expected-error @+1 {{expected a value of 'tensor<6xf32>', got 'tensor<2xf32>'}}
  piper.write @bucket0, %v : tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected tags other than PASS, got PASS = 0 : i64}}
  %y, %s, %t = piper.compute @f(%x, %w) F {PASS = 0} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0 or unit, got -1 : i64}}
  %y, %s, %t = piper.compute @f(%x, %w) F {stage = -1} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0 or unit, got "*"}}
  %y, %s, %t = piper.compute @f(%x, %w) F {stage = "*"} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected tag "stage" to be an index of at least 0 or unit, got 0 : i32}}
  %y, %s, %t = piper.compute @f(%x, %w) F {stage = 0 : i32} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected 0 <= microbatch < num_microbatches, got 3 of 3}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} microbatch 3 of 3 : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected one variant per rank, got 0 of 1 ranks}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} functions [@f4] [] : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected one variant per rank, got 1 of 2 ranks}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} on [0, 1] functions [@f4] [0] : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected variants from 0 to 0, got 1}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} on [0, 1] functions [@f4] [0, 1] : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected functions and variants together, got only variants}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} {variants = array<i64: 0>} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected functions and variants together, got only functions}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} {functions = [@f4]} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected @f to name a piper.chunk, got no such symbol}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected @compute to name a piper.stream, got no such symbol}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} stream @compute : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected pass F of the chunk, got B}}
  %y, %s, %t = piper.compute @f(%x, %w) B {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected members of the chunk, got @g4}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} functions [@f4, @g4] [0] : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected 2 operands, got 1}}
  %y, %s, %t = piper.compute @f(%x) F {} : (tensor<?x2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected 2 results, got 1}}
  %y, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected operand 1 to agree with 'tensor<2xf32>', got 'tensor<?x2xf32>'}}
  %y, %s, %t = piper.compute @f(%x, %x) F {} : (tensor<?x2xf32>, tensor<?x2xf32>) -> (tensor<?xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // one member has 4 rows, the other 3: no extent agrees with both
  // expected-error @+1 {{expected result 0 to agree with 'tensor<3xf32>', got 'tensor<4xf32>'}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected result 0 to agree with 'tensor<4xf32>', got 'tensor<?xf64>'}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf64>, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
// expected-note @+1 {{the chunk is here}}
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected result 1 to be a bundle of 2 values, got 'tensor<?xf32>'}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-error @+1 {{expected result 0 to be a ranked tensor or a bundle, got '!piper.message'}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (!piper.message, !piper.bundle)
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @g B operands [2] results [1] [{binding = {rows = 4}, function = @g4}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  %s = builtin.unrealized_conversion_cast to !piper.bundle
  // expected-error @+1 {{expected operand 0 to be a bundle that a piper.compute makes}}
  %y, %t = piper.compute @g(%s) B {} : (!piper.bundle) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
func.func private @h4(tensor<4xf32>) -> tensor<2xf32>
piper.chunk @h B operands [1] results [1] [{binding = {rows = 4}, function = @h4}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-note @+1 {{the bundle is made here}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  // expected-error @+1 {{expected operand 0 to hold 1 values, got 2}}
  %g, %t1 = piper.compute @h(%s) B {} : (!piper.bundle) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
func.func private @h4(tensor<4xf32>, tensor<2xf64>) -> tensor<2xf32>
piper.chunk @h B operands [2] results [1] [{binding = {rows = 4}, function = @h4}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-note @+1 {{the bundle is made here}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  // expected-error @+1 {{expected operand 0 to hold 'tensor<2xf64>', got 'tensor<2xf32>'}}
  %g, %t1 = piper.compute @h(%s) B {} : (!piper.bundle) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @f F operands [1, 1] results [1, 2] [{binding = {rows = 4}, function = @f4}, {binding = {rows = 3}, function = @f3}]
func.func private @h4(tensor<4xf32>, tensor<2xf64>) -> tensor<2xf32>
piper.chunk @h B operands [2] results [1] [{binding = {rows = 4}, function = @h4}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %x = piper.input "x" 0 split : tensor<?x2xf32>
  %w = piper.input "w" 1 : tensor<2xf32>
  // expected-note @+1 {{the bundle is made here}}
  %y, %s, %t = piper.compute @f(%x, %w) F {} : (tensor<?x2xf32>, tensor<2xf32>) -> (tensor<?xf32>, !piper.bundle)
  %m, %t1 = piper.send %s on [0] to [1] : !piper.bundle
  %r, %t2 = piper.recv %m on [1] from [0] : !piper.bundle
  // a transfer does not change what a bundle holds
  // expected-error @+1 {{expected operand 0 to hold 'tensor<2xf64>', got 'tensor<2xf32>'}}
  %g, %t3 = piper.compute @h(%r) B {} : (!piper.bundle) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
func.func private @f4(tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>)
func.func private @f3(tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)
func.func private @g4(tensor<4xf32>, tensor<2xf32>) -> tensor<2xf32>
piper.chunk @g B operands [2] results [1] [{binding = {rows = 4}, function = @g4}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // graphs hold no cycles, so the search for a bundle's maker ends
  // expected-error @+1 {{operand #0 does not dominate this use}}
  %m, %t1 = piper.send %r on [0] to [1] : !piper.bundle
  // expected-note @+1 {{operand defined here (op in the same block)}}
  %r, %t2 = piper.recv %m on [1] from [0] : !piper.bundle
  %y, %t = piper.compute @g(%r) B {} : (!piper.bundle) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-error @+1 {{expected at least one contribution, got none}}
  %a, %t = "piper.accumulate"() <{operandSegmentSizes = array<i32: 0, 0>}> : () -> (tensor<4xf32>, !piper.token)
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected contributions of 'tensor<5xf32>', got 'tensor<4xf32>'}}
  %a, %t = piper.accumulate (%v) : tensor<4xf32> -> tensor<5xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected @compute to name a piper.stream, got no such symbol}}
  %a, %t = piper.accumulate (%v) stream @compute : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected @w to name a piper.state, got no such symbol}}
  %a, %t = piper.accumulate @w (%v) : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a trainable state, got @w}}
  %a, %t = piper.accumulate @w (%v) : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<5xf32>
  // expected-error @+1 {{expected a sum of 'tensor<4xf32>', got 'tensor<5xf32>'}}
  %a, %t = piper.accumulate @w (%v) : tensor<5xf32> -> tensor<5xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{attribute 'state' failed to satisfy constraint: flat symbol reference attribute}}
  %a, %t = piper.accumulate @w::@v (%v) : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  // expected-note @+1 {{it is made here}}
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a contribution that a rank computes, got one of piper.input}}
  %a, %t = piper.accumulate (%v) : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  // expected-note @+1 {{it is made here}}
  %v = piper.input "x" 0 : tensor<f32>
  // expected-error @+1 {{expected a sum that a rank computes, got one of piper.input}}
  piper.return %v, %v : tensor<f32>, tensor<f32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected one part per state, got 1 parts of 2 states}}
  %p = piper.pack @bucket0 [@w, @b] (%v) : (tensor<4xf32>) -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected a bucket with states, got states alone}}
  %p = piper.pack () {states = [@w]} : () -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected a vector of one element per part, got 'tensor<3xf32>' of 2 parts}}
  %p = piper.pack (%s, %s) : (tensor<f32>, tensor<f32>) -> tensor<3xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected a vector of one element per part, got 'tensor<f32>' of 0 parts}}
  %p = piper.pack () : () -> tensor<f32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected parts of 'tensor<f32>' where no bucket is given, got 'tensor<4xf32>'}}
  %p = piper.pack (%v) : (tensor<4xf32>) -> tensor<1xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected parts of 'tensor<f64>' where no bucket is given, got 'tensor<f32>'}}
  %p = piper.pack (%s) : (tensor<f32>) -> tensor<1xf64>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{result #0 must be statically shaped tensor of any type values, but got 'tensor<?xf32>'}}
  %p = piper.pack () : () -> tensor<?xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected @bucket0 to name a piper.bucket, got no such symbol}}
  %p = piper.pack @bucket0 [@w] (%v) : (tensor<4xf32>) -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected a state of the bucket, got @c}}
  %p = piper.pack @bucket0 [@c] (%v) : (tensor<4xf32>) -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected one part of @w per device group, got a second}}
  %p = piper.pack @bucket0 [@w, @w] (%v, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  %s = piper.input "s" 1 : tensor<f32>
  // expected-error @+1 {{expected a result of 'tensor<8xf32>', got 'tensor<6xf32>'}}
  %p = piper.pack @bucket0 [@w] (%v) : (tensor<4xf32>) -> tensor<6xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-note @+1 {{the state is here}}
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a part of 'tensor<2xf32>', got 'tensor<4xf32>'}}
  %p = piper.pack @bucket0 [@b] (%v) : (tensor<4xf32>) -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected @bucket0 to name a piper.bucket, got no such symbol}}
  %p = piper.unpack @bucket0 @w %v : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a state of the bucket, got @c}}
  %p = piper.unpack @bucket0 @c %v : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-note @+1 {{the state is here}}
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a result of 'tensor<2xf32>', got 'tensor<4xf32>'}}
  %p = piper.unpack @bucket0 @b %v : tensor<8xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<6xf32>
  // expected-error @+1 {{expected a flat vector of 'tensor<8xf32>', got 'tensor<6xf32>'}}
  %p = piper.unpack @bucket0 @w %v : tensor<6xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected @sgd to name a piper.optimizer, got no such symbol}}
  %t = piper.update @w (%v) optimizer @sgd : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected @compute to name a piper.stream, got no such symbol}}
  %t = piper.update @w (%v) optimizer @sgd stream @compute : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected @w to name a piper.state or piper.bucket, got no such symbol}}
  %t = piper.update @w (%v) optimizer @sgd : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected no scale and no result where a state is updated, got a scale}}
  %t = piper.update @w (%v) scale %both optimizer @sgd : tensor<4xf32>, tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected no scale and no result where a state is updated, got a result}}
  %n, %t = piper.update @w (%v) optimizer @sgd : tensor<4xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a trainable state, got @w}}
  %t = piper.update @w (%v) optimizer @sgd : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<5xf32>
  // expected-error @+1 {{expected a gradient of 'tensor<4xf32>', got 'tensor<5xf32>'}}
  %t = piper.update @w (%v) optimizer @sgd : tensor<5xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected the gradient to be the piper.accumulate of @w, got another value}}
  %t = piper.update @w (%v) optimizer @sgd : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.state @other : tensor<4xf32> parameter trainable ["other"]
func.func private @f4() -> tensor<4xf32>
piper.chunk @f B operands [] results [1] [{binding = {rows = 4}, function = @f4}]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %g, %t0 = piper.compute @f() B {} : () -> tensor<4xf32>
  %s, %t1 = piper.accumulate @other (%g) : tensor<4xf32> -> tensor<4xf32>
  // expected-error @+1 {{expected the gradient to be the piper.accumulate of @w, got another value}}
  %t = piper.update @w (%s) optimizer @sgd : tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a scale and a result where a bucket is updated, got no scale}}
  %t = piper.update @bucket0 (%v) optimizer @sgd : tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a scale and a result where a bucket is updated, got no result}}
  %t = piper.update @bucket0 (%v) scale %both optimizer @sgd : tensor<8xf32>, tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a scale of 'tensor<2xf32>', got 'tensor<8xf32>'}}
  %n, %t = piper.update @bucket0 (%v) scale %v optimizer @sgd : tensor<8xf32>, tensor<8xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.optimizer @other "sgd" slots [] scalars [] config {}
piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected the bucket's optimizer, @sgd, got @other}}
  %n, %t = piper.update @bucket0 (%v) scale %both optimizer @other : tensor<8xf32>, tensor<2xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1]
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected the bucket's optimizer, none, got @sgd}}
  %n, %t = piper.update @bucket0 (%v) scale %both optimizer @sgd : tensor<8xf32>, tensor<2xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a gradient of 'tensor<8xf32>', got 'tensor<4xf32>'}}
  %n, %t = piper.update @bucket0 (%v) scale %both optimizer @sgd : tensor<4xf32>, tensor<2xf32> -> tensor<4xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd {shard_optimizer}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<8xf32>
  // expected-error @+1 {{expected a gradient of 'tensor<4xf32>', got 'tensor<8xf32>'}}
  %n, %t = piper.update @bucket0 (%v) scale %both optimizer @sgd : tensor<8xf32>, tensor<2xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
piper.state @b : tensor<2xf32> parameter trainable ["b"]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the bucket is here}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 8 ranks [0, 1] optimizer @sgd {shard_optimizer}
piper.graph @step rows 4 {
  %both = piper.pack () : () -> tensor<2xf32>
  %v = piper.input "v" 0 : tensor<4xf32>
  // expected-error @+1 {{expected a result of 'tensor<4xf32>', got 'tensor<8xf32>'}}
  %n, %t = piper.update @bucket0 (%v) scale %both optimizer @sgd : tensor<4xf32>, tensor<2xf32> -> tensor<8xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.graph @step rows 4 {
  %x = piper.input "x" 0 : tensor<f32>
  // expected-error @+1 {{expected parts of slot 0 from different device groups}}
  %both = piper.pack (%x, %x) into [0, 0] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.graph @step rows 4 {
  %x = piper.input "x" 0 : tensor<f32>
  // expected-error @+1 {{expected slots from 0 to 1, got 2}}
  %both = piper.pack (%x, %x) into [0, 2] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [2]
piper.graph @step rows 4 {
  %x = piper.input "x" 0 : tensor<f32>
  // expected-error @+1 {{expected a vector and one slot per part, got 'tensor<2xf32>' and 1 slots of 2 parts}}
  %both = piper.pack (%x, %x) into [0] : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
  piper.return %both : tensor<2xf32>
}
