// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expected 'pointer_bytes' within 2^48, got 9223372036854775807}}
piper.plan.kernel "k" [9223372036854775807] "r"

// -----

// expected-error @below {{expected 'workspace' within 2^48, got -9223372036854775808}}
piper.plan.kernel "k" [8] "r" workspace -9223372036854775808

// -----

module {
  piper.graph @step rows 4 {
    // expected-error @below {{attribute 'index' failed to satisfy constraint}}
    %x = piper.input "args.0" 4294967296 split : tensor<?x4xf32>
  }
}

// -----

// expected-error @below {{expected a tensor of at most 2^48 elements, got 'tensor<9223372036854775807x4xf32>'}}
piper.state @w : tensor<9223372036854775807x4xf32> parameter ["w"]

// -----

// expected-error @below {{expected a tensor of at most 2^48 elements, got 'tensor<0x9223372036854775807xf32>'}}
piper.state @w : tensor<0x9223372036854775807xf32> parameter ["w"]

// -----

module {
  piper.graph @step rows 4 {
    // expected-error @below {{expected a tensor of at most 2^48 elements, got 'tensor<?x4294967296x4294967296xf32>'}}
    %x = piper.input "args.0" 0 split : tensor<?x4294967296x4294967296xf32>
  }
}

// -----

// expected-error @below {{expected tensors of at most 2^48 elements as arguments, got 'tensor<4294967296x4294967296xf32>'}}
piper.chunk @c F operands [1] results [1] [{binding = {rows = 2 : i64}, function = @f}]
// expected-note @below {{the function is here}}
func.func private @f(tensor<4294967296x4294967296xf32>) -> tensor<2xf32>
