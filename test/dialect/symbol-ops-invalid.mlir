// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

// Every constraint of PiperDialect.td and PiperSymbolOps.td.

// expected-error @+1 {{expected piper.phase = "imported", "scheduled" or "planned", got "done"}}
module attributes {piper.phase = "done"} {}

// -----

// expected-error @+1 {{expected piper.phase on a module, got it here}}
func.func private @f() attributes {piper.phase = "imported"}

// -----

// expected-error @+1 {{expected at least one axis, got []}}
piper.mesh @mesh [] []

// -----

// expected-error @+1 {{expected one extent per axis, got 2 extents of 1 axes}}
piper.mesh @mesh ["pp"] [2, 2]

// -----

// expected-error @+1 {{expected distinct axes, got "pp" twice}}
piper.mesh @mesh ["pp", "pp"] [2, 2]

// -----

// expected-error @+1 {{expected every axis to have a name, got ""}}
piper.mesh @mesh [""] [2]

// -----

// expected-error @+1 {{expected an extent of at least 1 for axis "pp", got 0}}
piper.mesh @mesh ["pp"] [0]

// -----

// expected-error @+1 {{expected at most 2147483647 ranks, got more}}
piper.mesh @mesh ["pp", "dp"] [65536, 65536]

// -----

// expected-note @+1 {{the first is here}}
piper.mesh @mesh ["pp"] [2]
// expected-error @+1 {{expected at most one in a module, got a second}}
piper.mesh @other ["pp"] [2]

// -----

func.func @f() {
  // expected-error @+1 {{expects parent op 'builtin.module'}}
  piper.stream @comm
  return
}

// -----

// expected-error @+1 {{attribute 'sms' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
piper.stream @comm {sms = 0 : i64}

// -----

// expected-error @+1 {{expected a ranked tensor of static shape and of integers or floating-point numbers, got 'tensor<?xf32>'}}
piper.state @w : tensor<?xf32> parameter ["w"]

// -----

// expected-error @+1 {{expected a ranked tensor of static shape and of integers or floating-point numbers, got 'tensor<*xf32>'}}
piper.state @w : tensor<*xf32> parameter ["w"]

// -----

// expected-error @+1 {{expected a ranked tensor of static shape and of integers or floating-point numbers, got 'f32'}}
piper.state @w : f32 parameter ["w"]

// -----

// expected-error @+1 {{expected a ranked tensor of static shape and of integers or floating-point numbers, got 'tensor<2xindex>'}}
piper.state @w : tensor<2xindex> buffer ["w"]

// -----

// expected-error @+1 {{expected only a parameter to be trainable, got a buffer}}
piper.state @w : tensor<2xf32> buffer trainable ["w"]

// -----

// expected-error @+1 {{expected a trainable parameter of floating-point type, got 'i64'}}
piper.state @w : tensor<2xi64> parameter trainable ["w"]

// -----

// expected-error @+1 {{expected names to start with "w", got []}}
piper.state @w : tensor<2xf32> parameter []

// -----

// expected-error @+1 {{expected names to start with "w", got ["v", "w"]}}
piper.state @w : tensor<2xf32> parameter ["v", "w"]

// -----

// expected-error @+1 {{expected distinct names, got "v" twice}}
piper.state @w : tensor<2xf32> parameter ["w", "v", "v"]

// -----

// expected-error @+1 {{expected the rule sgd, adam or adamw, got "rmsprop"}}
piper.optimizer @o "rmsprop" slots [] scalars [] config {}

// -----

// expected-error @+1 {{expected the slots of sgd, momentum_buffer, got "exp_avg"}}
piper.optimizer @o "sgd" slots ["exp_avg"] scalars [] config {}

// -----

// expected-error @+1 {{expected the slots of adam, exp_avg, exp_avg_sq, max_exp_avg_sq, got "momentum_buffer"}}
piper.optimizer @o "adam" slots ["exp_avg", "momentum_buffer"] scalars [] config {}

// -----

// expected-error @+1 {{expected distinct slots, got "exp_avg" twice}}
piper.optimizer @o "adamw" slots ["exp_avg", "exp_avg"] scalars [] config {}

// -----

// expected-error @+1 {{expected distinct scalars, got "lr" twice}}
piper.optimizer @o "sgd" slots [] scalars ["lr", "lr"] config {}

// -----

// expected-error @+1 {{expected every scalar to have a name, got ""}}
piper.optimizer @o "sgd" slots [] scalars [""] config {}

// -----

// expected-error @+1 {{expected numbers and booleans in config, got "beta" = "high"}}
piper.optimizer @o "sgd" slots [] scalars [] config {beta = "high"}

// -----

// expected-error @+1 {{expected at least one rank, got []}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks []

// -----

// expected-error @+1 {{expected at least one state, got []}}
piper.bucket @bucket0 [] offsets [] elements 4 padded 4 ranks [0]

// -----

// expected-error @+1 {{expected one offset per state, got 2 offsets of 1 states}}
piper.bucket @bucket0 [@w] offsets [0, 4] elements 4 padded 4 ranks [0]

// -----

// expected-error @+1 {{expected padded to be at least 5 and a multiple of 2, got 4}}
piper.bucket @bucket0 [@w] offsets [0] elements 5 padded 4 ranks [0, 1]

// -----

// expected-error @+1 {{expected padded to be at least 4 and a multiple of 2, got 5}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 5 ranks [0, 1]

// -----

// expected-error @+1 {{expected shard_optimizer with shard_grads, got shard_grads alone}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0, 1] {shard_grads}

// -----

// expected-error @+1 {{expected shard_grads with shard_params, got shard_params without it}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0, 1] {shard_params, shard_optimizer}

// -----

piper.mesh @mesh ["dp"] [2]
// expected-error @+1 {{expected @w to name a piper.state, got no such symbol}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0]

// -----

// expected-note @+1 {{it names a piper.mesh}}
piper.mesh @mesh ["dp"] [2]
// expected-error @+1 {{expected @mesh to name a piper.state}}
piper.bucket @bucket0 [@mesh] offsets [0] elements 4 padded 4 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-note @+1 {{the state is here}}
piper.state @b : tensor<2xbf16> parameter trainable ["b"]
// expected-error @+1 {{expected states of one element type, got 'f32' and 'bf16'}}
piper.bucket @bucket0 [@w, @b] offsets [0, 4] elements 6 padded 6 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
piper.optimizer @sgd "sgd" slots [] scalars [] config {}
// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter ["w"]
// expected-error @+1 {{expected trainable states where an optimizer is given, got @w}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0] optimizer @sgd

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-note @+1 {{the state is here}}
piper.state @b : tensor<2xf32> parameter trainable ["b"]
// expected-error @+1 {{expected @b to start at 4 or later, got 2}}
piper.bucket @bucket0 [@w, @b] offsets [0, 2] elements 6 padded 6 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected @w to start at 0 or later, got -1}}
piper.bucket @bucket0 [@w] offsets [-1] elements 6 padded 6 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{attribute 'elements' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
piper.bucket @bucket0 [@w] offsets [0] elements 0 padded 4 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected the states to end within 4 elements, got 4 from 281474976710656 on}}
piper.bucket @bucket0 [@w] offsets [281474976710656] elements 4 padded 4 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
// expected-note @+1 {{the state is here}}
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected the states to end within 4 elements, got 4 from 1 on}}
piper.bucket @bucket0 [@w] offsets [1] elements 4 padded 4 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected @sgd to name a piper.optimizer, got no such symbol}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0] optimizer @sgd

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0] {gather_stream = @dp}

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected @dp to name a piper.stream, got no such symbol}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0] {reduce_stream = @dp}

// -----

piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected a piper.mesh in the module, got ranks [0, 1] without one}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0, 1]

// -----

// expected-note @+1 {{the mesh is here}}
piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected ranks from 0 to 1, got 2}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0, 2]

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+1 {{expected distinct ranks, got 1 twice}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [1, 1]

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-note @+1 {{the first is here}}
piper.bucket @bucket0 [@w] offsets [0] elements 4 padded 4 ranks [0]
piper.bucket @bucket1 [@w] offsets [0] elements 4 padded 4 ranks [1]
// expected-error @+1 {{expected one bucket per state and rank, got a second that holds @w on rank 0}}
piper.bucket @bucket2 [@w] offsets [0] elements 4 padded 4 ranks [0]

// -----

piper.mesh @mesh ["dp"] [2]
piper.state @w : tensor<4xf32> parameter trainable ["w"]
// expected-error @+2 {{expected one bucket per state and rank, got a second that holds @w on rank 1}}
// expected-note @+1 {{the first is here}}
piper.bucket @bucket0 [@w, @w] offsets [0, 4] elements 8 padded 8 ranks [1]

// -----

// expected-error @+1 {{expected at least one member, got []}}
piper.chunk @c F operands [1] results [1] []

// -----

// expected-error @+1 {{expected members {binding = {...}, function = @name}, got {function = @f}}}
piper.chunk @c F operands [1] results [1] [{function = @f}]

// -----

// expected-error @+1 {{expected members {binding = {...}, function = @name}, got {binding = {rows = 4 : i64}, function = "f"}}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = "f"}]

// -----

// expected-error @+1 {{expected members {binding = {...}, function = @name}, got {binding = {rows = 4 : i64}, function = @f, more}}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f, more}]

// -----

// expected-error @+1 {{expected "rows" to be bound to a positive integer, got 0 : i64}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 0}, function = @f}]

// -----

// expected-error @+1 {{expected "rows" to be bound to a positive integer, got 4 : i32}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4 : i32}, function = @f}]

// -----

// expected-error @+1 {{expected distinct bindings, got {rows = 4 : i64} twice}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}, {binding = {rows = 4}, function = @g}]

// -----

// expected-error @+1 {{expected bindings of the same names, got {rows = 4 : i64} and {experts_local = 4 : i64}}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}, {binding = {experts_local = 4}, function = @g}]

// -----

// expected-error @+1 {{expected counts from 0 to 2147483647, got -1}}
piper.chunk @c F operands [1, -1] results [1] [{binding = {rows = 4}, function = @f}]

// -----

// expected-error @+1 {{expected counts from 0 to 2147483647, got 281474976710656}}
piper.chunk @c F operands [281474976710656] results [1] [{binding = {rows = 4}, function = @f}]

// -----

// expected-error @+1 {{expected counts from 0 to 2147483647, got -2}}
piper.chunk @c F operands [1] results [-2] [{binding = {rows = 4}, function = @f}]

// -----

// expected-error @+1 {{expected @f to name a func.func, got no such symbol}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}]

// -----

// expected-note @+1 {{the function is here}}
func.func private @f(tensor<4x2xf32>) -> tensor<4xf32>
// expected-error @+1 {{expected functions of 2 arguments, got 1}}
piper.chunk @c F operands [1, 1] results [1] [{binding = {rows = 4}, function = @f}]

// -----

// expected-note @+1 {{the function is here}}
func.func private @f(tensor<4x2xf32>) -> tensor<4xf32>
// expected-error @+1 {{expected functions of 3 results, got 1}}
piper.chunk @c F operands [1] results [1, 2] [{binding = {rows = 4}, function = @f}]

// -----

// expected-note @+1 {{the function is here}}
func.func private @f(memref<4xf32>) -> tensor<4xf32>
// expected-error @+1 {{expected ranked tensors as arguments, got 'memref<4xf32>'}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}]

// -----

// expected-note @+1 {{the function is here}}
func.func private @f(tensor<4xf32>) -> tensor<*xf32>
// expected-error @+1 {{expected ranked tensors as results, got 'tensor<*xf32>'}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}]

// -----

// expected-note @+1 {{one member is here}}
func.func private @f(tensor<4x2xf32>) -> tensor<4xf32>
// expected-note @+1 {{the other is here}}
func.func private @g(tensor<3x2xf64>) -> tensor<3xf32>
// expected-error @+1 {{expected members that agree in rank and element type, got argument 0 of 'tensor<4x2xf32>' and 'tensor<3x2xf64>'}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}, {binding = {rows = 3}, function = @g}]

// -----

// expected-note @+1 {{one member is here}}
func.func private @f(tensor<4x2xf32>) -> tensor<4xf32>
// expected-note @+1 {{the other is here}}
func.func private @g(tensor<3x2xf32>) -> tensor<3x1xf32>
// expected-error @+1 {{expected members that agree in rank and element type, got result 0 of 'tensor<4xf32>' and 'tensor<3x1xf32>'}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 4}, function = @f}, {binding = {rows = 3}, function = @g}]
