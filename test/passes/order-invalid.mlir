// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-order -split-input-file -verify-diagnostics

module {
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-note @below {{F {stage = 0} comes before F {stage = 1} by data}}
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{F {stage = 1} comes before F {stage = 0} by order}}
    %loss, %weight, %t1 = piper.compute @c1_F(%y) F {stage = 1 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected an order that agrees with the data, got a cycle of 2 operations}}
    // expected-note @below {{the order of each rank:}}
    piper.order [[{stage = 1 : i64}], [{stage = 0 : i64}]]
  }
}

// -----

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-note @below {{F {stage = 0} comes before F {stage = 0} by order}}
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{got a cycle of 1 operations}}
    // expected-note @below {{the order of each rank:}}
    piper.order [[{stage = 0 : i64}], [{PASS = "F"}]]
  }
}

// -----

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected nodes that match {PASS = "F", stage = 3}, got none; known tags: stage (0 to 0)}}
    piper.order [[{stage = 0 : i64}], [{stage = 3 : i64, PASS = "F"}]]
  }
}

// -----

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected a program whose backward is divided into I and W to match {PASS = "BI", stage = 0}; here the backward is one pass: name B}}
    piper.order [[{stage = 0 : i64, PASS = "BI"}], [{stage = 0 : i64, PASS = "BW"}]]
  }
}

// -----

module {
  piper.chunk @c_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c_F_rows2}]
  func.func private @c_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %loss, %weight, %t1 = piper.compute @c_F(%x) F {stage = 0 : i64} : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-error @below {{expected a known tag, got "MB"; known tags: stage (0 to 0)}}
    piper.order [[{stage = 0 : i64}], [{MB = 0 : i64}]]
  }
}

// -----

module {
  piper.mesh @mesh ["pp"] [2]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} on [0] stream @compute : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %y2, %t1 = piper.compute @c0_F(%x) F {stage = 1 : i64} on [1] stream @compute : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %m, %t2 = piper.send %y on [0] to [1] stream @pp_stream : tensor<?x4xf32>
    %r, %t3 = piper.recv %m on [1] from [0] stream @pp_stream : tensor<?x4xf32>
    %loss, %weight, %t4 = piper.compute @c1_F(%r) F {stage = 2 : i64} on [1] stream @compute : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // Data keeps this one, on whatever ranks.
    piper.order [[{stage = 0 : i64}], [{stage = 2 : i64}]]
    // expected-warning @below {{expected groups that share a rank, got F {stage = 0} on [0] and F {stage = 1} on [1]: their order is left to the data}}
    piper.order [[{stage = 0 : i64}], [{stage = 1 : i64}]]
  }
}

// -----

// No rank runs both groups, and still their order contradicts the data between them.
module {
  piper.mesh @mesh ["pp"] [3]
  piper.stream @compute
  piper.stream @pp_stream
  piper.chunk @c0_F F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @c0_F_rows2}]
  piper.chunk @c1_F F operands [1] results [1, 1] [{binding = {rows = 2 : i64}, function = @c1_F_rows2}]
  func.func private @c0_F_rows2(tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @c1_F_rows2(tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)
  piper.graph @step rows 2 {
    %x = piper.input "args.0" 0 split : tensor<?x4xf32>
    // expected-note @below {{F {stage = 0} comes before piper.send by data}}
    %y, %t0 = piper.compute @c0_F(%x) F {stage = 0 : i64} on [0] stream @compute : (tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-note @below {{piper.send comes before piper.recv by data}}
    %m, %t1 = piper.send %y on [0] to [1] stream @pp_stream : tensor<?x4xf32>
    // expected-note @below {{piper.recv comes before F {stage = 1} by data}}
    %r, %t2 = piper.recv %m on [1] from [0] stream @pp_stream : tensor<?x4xf32>
    // expected-note @below {{F {stage = 1} comes before F {stage = 0} by order}}
    %loss, %weight, %t3 = piper.compute @c1_F(%r) F {stage = 1 : i64} on [1] stream @compute : (tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>)
    piper.return %loss, %weight : tensor<f32>, tensor<f32>
  }
  piper.strategy @strategy {
    // expected-warning @below {{expected groups that share a rank}}
    // expected-error @below {{expected an order that agrees with the data, got a cycle of 4 operations}}
    // expected-note @below {{the order of each rank:}}
    piper.order [[{stage = 1 : i64}], [{stage = 0 : i64}]]
  }
}
