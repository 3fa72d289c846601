// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-partition -split-input-file -verify-diagnostics

piper.mesh @mesh ["dp"] [1]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.chunk @f F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @f_rows2}]
func.func private @f_rows2(tensor<2xf32>) -> tensor<2xf32>
piper.graph @step rows 2 {
  %x = piper.input "args.0" 0 split : tensor<?xf32>
  // expected-error @+1 {{expected a function for each rank, as piper-specialize gives}}
  %y, %t = piper.compute @f(%x) F {stage = 0 : i64} on [0] stream @compute : (tensor<?xf32>) -> tensor<?xf32>
  %l = piper.pack () : () -> tensor<2xf32>
  piper.return %l : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [1]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.chunk @f F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @f_rows2}]
func.func private @f_rows2(tensor<2xf32>) -> tensor<2xf32>
piper.graph @step rows 2 {
  %x = piper.input "args.0" 0 split : tensor<?xf32>
  // expected-error @+1 {{expected ranks in the scheduled phase}}
  %y, %t = piper.compute @f(%x) F {stage = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  %l = piper.pack () : () -> tensor<2xf32>
  piper.return %l : tensor<2xf32>
}

// -----

piper.mesh @mesh ["dp"] [1]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.graph @step rows 2 {
  // expected-error @+1 {{expected a shape that is known but for the rows, got 'tensor<?x?xf32>'}}
  %x = piper.input "args.0" 0 split : tensor<?x?xf32>
  %l = piper.pack () : () -> tensor<2xf32>
  piper.return %l : tensor<2xf32>
}

// -----

// The value is on rank 0 only.
piper.mesh @mesh ["pp"] [2]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.chunk @f F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @f_rows2}]
func.func private @f_rows2(tensor<2xf32>) -> tensor<2xf32>
piper.graph @step rows 2 {
  %x = piper.input "args.0" 0 split : tensor<?xf32>
  // expected-note @+1 {{made here}}
  %y, %t = piper.compute @f(%x) F {stage = 0 : i64} on [0] stream @compute functions [@f_rows2] [0] : (tensor<?xf32>) -> tensor<?xf32>
  // expected-error @+1 {{expected every operand on rank 1, got one that only other ranks have}}
  %z, %u = piper.compute @f(%y) F {stage = 1 : i64} on [1] stream @compute functions [@f_rows2] [0] : (tensor<?xf32>) -> tensor<?xf32>
  %l = piper.pack () : () -> tensor<2xf32>
  piper.return %l : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [2]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.graph @step rows 2 {
  %x = piper.input "args.0" 0 split : tensor<?xf32>
  // expected-error @+1 {{expected a value other than an input, which every rank has}}
  %m, %t = piper.send %x on [0] to [1] stream @pp : tensor<?xf32>
  %y, %u = piper.recv %m on [1] from [0] stream @pp : tensor<?xf32>
  %l = piper.pack () : () -> tensor<2xf32>
  piper.return %l : tensor<2xf32>
}

// -----

piper.mesh @mesh ["pp"] [1]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.graph @step rows 2 {
  %x = piper.input "args.0" 0 : tensor<f32>
  %l, %t = piper.all_reduce sum %x on [0] stream @dp : tensor<f32> -> tensor<f32>
  // expected-error @+1 {{expected one packed value in the scheduled phase, got 2}}
  piper.return %l, %l : tensor<f32>, tensor<f32>
}

// -----

piper.mesh @mesh ["pp"] [2]
piper.stream @compute
piper.stream @pp
piper.chunk @f F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @f_rows2}]
func.func private @f_rows2(tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
piper.graph @step rows 2 {
  %x = piper.input "args.0" 0 split : tensor<?xf32>
  %y, %z, %t = piper.compute @f(%x) F {stage = 0 : i64} on [0] stream @compute functions [@f_rows2] [0] : (tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  %m0, %t0 = piper.send %y on [0] to [1] stream @pp : tensor<?xf32>
  %m1, %t1 = piper.send %z on [0] to [1] stream @pp : tensor<?xf32>
  // expected-error @+1 {{expected receives in the order of their sends, got one before that of an earlier message}}
  %r1, %t2 = piper.recv %m1 on [1] from [0] stream @pp : tensor<?xf32>
  // expected-note @+1 {{the receive of the earlier one}}
  %r0, %t3 = piper.recv %m0 on [1] from [0] stream @pp : tensor<?xf32>
  %l = piper.pack () : () -> tensor<2xf32>
  piper.return %l : tensor<2xf32>
}
