// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-materialize-updates -split-input-file -verify-diagnostics

// expected-error @+1 {{expected lr among scalars or config of the rule sgd}}
piper.optimizer @group0 "sgd" slots [] scalars ["rate"] config {}
piper.plan.kernel "update" [64, 64, 4, 8] "xrrr" {optimizer = @group0, type = f32}

// -----

// expected-error @+1 {{expected momentum among scalars or config of the rule sgd}}
piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr"] config {}
piper.plan.kernel "update" [64, 64, 64, 4, 8] "xrxrr" {optimizer = @group0, type = f32}

// -----

// expected-error @+1 {{expected the slot exp_avg_sq of the rule adam}}
piper.optimizer @group0 "adam" slots ["exp_avg"] scalars ["step_size", "bias_correction2_sqrt"] config {eps = 1.0e-8 : f64, beta1 = 0.9 : f64, beta2 = 0.999 : f64}
piper.plan.kernel "update" [64, 64, 64, 8, 8] "xrxrr" {optimizer = @group0, type = f32}

// -----

// expected-error @+1 {{expected parameters of type f32 or f64, got 'bf16'}}
piper.optimizer @group0 "sgd" slots [] scalars ["lr"] config {}
piper.plan.kernel "update" [64, 64, 4, 8] "xrrr" {optimizer = @group0, type = bf16}

// -----

// expected-error @+1 {{expected an optimizer, got @group1}}
piper.plan.kernel "update" [64, 64, 4, 8] "xrrr" {optimizer = @group1, type = f32}
