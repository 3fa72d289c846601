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
