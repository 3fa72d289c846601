// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

func.func @shapes(%a: tensor<2x3xf32>, %b: tensor<4x5xf32>, %c: tensor<2x5xf32>) {
  // expected-error @below {{expected shapes of a matrix product, got 'tensor<2x3xf32>' times 'tensor<4x5xf32>' into 'tensor<2x5xf32>'}}
  %0 = piper.gemm ins(%a, %b : tensor<2x3xf32>, tensor<4x5xf32>) outs(%c : tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @ranks(%a: tensor<2x3xf32>, %b: tensor<1x3x5xf32>, %c: tensor<2x5xf32>) {
  // expected-error @below {{expected operands of one rank, 2 or 3, got ranks 2, 3 and 2}}
  %0 = piper.gemm ins(%a, %b : tensor<2x3xf32>, tensor<1x3x5xf32>) outs(%c : tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @mixed(%a: memref<2x3xf32>, %b: tensor<3x5xf32>, %c: tensor<2x5xf32>) {
  // expected-error @below {{expected all operands to be tensors or all to be memrefs}}
  %0 = piper.gemm ins(%a, %b : memref<2x3xf32>, tensor<3x5xf32>) outs(%c : tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @symbol(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected a symbol of the kernel library, got 'fft'}}
  %0 = piper.library_call "fft"(%x) {params = array<i64: 2, 3, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @params(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected 3 params (outer N inner), got 2}}
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @scale(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected no scale for 'cumsum'}}
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, 3, 1>, scale = 1.0 : f64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @count(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected 1 inputs of 'cumsum', got 2}}
  %0 = piper.library_call "cumsum"(%x, %x) {params = array<i64: 2, 3, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @elements(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected result 0 to have 6 elements (outer N inner), got 'tensor<2x4xf32>'}}
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, 3, 1>} : (tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @type(%x: tensor<2x3xi64>) {
  // expected-error @below {{expected input 0 to have element type f32, got 'tensor<2x3xi64>'}}
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, 3, 1>} : (tensor<2x3xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @negative(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected param N not to be negative, got -3}}
  %0 = piper.library_call "cumsum"(%x) {params = array<i64: 2, -3, -1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @taken(%x: tensor<2x3xf32>) {
  // expected-error @below {{expected k to be at most N, got 4 and 3}}
  %0:2 = piper.library_call "topk"(%x) {params = array<i64: 2, 3, 4, 1, 1>} : (tensor<2x3xf32>) -> (tensor<2x4xf32>, tensor<2x4xi64>)
  return
}

// -----

func.func @heads(%q: tensor<1x3x4x8xf32>, %k: tensor<1x2x4x8xf32>) {
  // expected-error @below {{expected the number of heads to be a multiple of that of key heads, got 3 and 2}}
  %0:2 = piper.library_call "attention_forward"(%q, %k, %k) {params = array<i64: 1, 3, 2, 4, 4, 8, 1>, scale = 1.0 : f64}
      : (tensor<1x3x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> (tensor<1x3x4x8xf32>, tensor<1x3x4xf32>)
  return
}

// -----

func.func @mixed(%a: tensor<2x3xbf16>, %b: tensor<3x5xf32>, %c: tensor<2x5xf32>) {
  // expected-error @below {{expected operands of one type and an output of f32 (or of bf16 where they are and it does not accumulate), got 'bf16' times 'f32' into 'f32'}}
  %0 = piper.gemm ins(%a, %b : tensor<2x3xbf16>, tensor<3x5xf32>) outs(%c : tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @narrow_sum(%a: tensor<2x3xbf16>, %b: tensor<3x5xbf16>, %c: tensor<2x5xbf16>) {
  // expected-error @below {{got 'bf16' times 'bf16' into 'bf16'}}
  %0 = piper.gemm ins(%a, %b : tensor<2x3xbf16>, tensor<3x5xbf16>) outs(%c : tensor<2x5xbf16>) {accumulate} -> tensor<2x5xbf16>
  return
}
