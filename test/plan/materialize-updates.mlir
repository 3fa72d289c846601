// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-materialize-updates -split-input-file | FileCheck %s

// AdamW: param * decay, lerp, addcmul, addcdiv, as torch.optim.AdamW's single-tensor path.
piper.optimizer @group0 "adamw" slots ["exp_avg", "exp_avg_sq"] scalars ["step_size", "bias_correction2_sqrt", "eps", "decay"] config {beta1 = 0.9 : f64, beta2 = 0.999 : f64}
// CHECK-LABEL: func.func @update_adamw_group0_64(
// CHECK-SAME: %[[P:[a-z0-9]+]]: memref<64xf32>, %[[G:[a-z0-9]+]]: memref<64xf32>, %[[M:[a-z0-9]+]]: memref<64xf32>, %[[V:[a-z0-9]+]]: memref<64xf32>, %[[S:[a-z0-9]+]]: memref<4xf32>, %[[SCALE:[a-z0-9]+]]: memref<2xf32>)
// CHECK: %[[STEP:.*]] = memref.load %[[S]]
// CHECK: %[[CORR:.*]] = memref.load %[[S]]
// CHECK: %[[EPS:.*]] = memref.load %[[S]]
// CHECK: %[[DECAY:.*]] = memref.load %[[S]]
// CHECK: %[[W:.*]] = memref.load %[[SCALE]]
// CHECK: %[[ACTIVE:.*]] = arith.cmpf une, %[[W]]
// CHECK: %[[INV:.*]] = arith.divf %{{.*}}, %[[W]]
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[G]] : memref<64xf32>) outs(%[[P]], %[[M]], %[[V]] : memref<64xf32>, memref<64xf32>, memref<64xf32>)
// CHECK: ^bb0(%[[G0:.*]]: f32, %[[P0:.*]]: f32, %[[M0:.*]]: f32, %[[V0:.*]]: f32):
// CHECK: %[[GRAD:.*]] = arith.mulf %[[G0]], %[[INV]]
// CHECK: %[[P1:.*]] = arith.mulf %[[P0]], %[[DECAY]]
// CHECK: %[[D:.*]] = arith.subf %[[GRAD]], %[[M0]]
// CHECK: %[[C1:.*]] = arith.constant 1.000000e-01 : f32
// CHECK: %[[MD:.*]] = arith.mulf %[[C1]], %[[D]]
// CHECK: %[[M1:.*]] = arith.addf %[[M0]], %[[MD]]
// CHECK-DAG: %[[B2:.*]] = arith.constant 9.990000e-01 : f32
// CHECK-DAG: %[[C2:.*]] = arith.constant 1.000000e-03 : f32
// CHECK-DAG: %[[VB:.*]] = arith.mulf %[[V0]], %[[B2]]
// CHECK-DAG: %[[GC:.*]] = arith.mulf %[[C2]], %[[GRAD]]
// CHECK-DAG: %[[GG:.*]] = arith.mulf %[[GC]], %[[GRAD]]
// CHECK: %[[V1:.*]] = arith.addf %[[VB]], %[[GG]]
// CHECK: %[[ROOT:.*]] = math.sqrt %[[V1]]
// CHECK: %[[Q:.*]] = arith.divf %[[ROOT]], %[[CORR]]
// CHECK: %[[DEN:.*]] = arith.addf %[[Q]], %[[EPS]]
// CHECK: %[[NEG:.*]] = arith.negf %[[STEP]]
// CHECK: %[[NM:.*]] = arith.mulf %[[NEG]], %[[M1]]
// CHECK: %[[U:.*]] = arith.divf %[[NM]], %[[DEN]]
// CHECK: %[[P2:.*]] = arith.addf %[[P1]], %[[U]]
// Without any weight everything stays as it was.
// CHECK: arith.select %[[ACTIVE]], %[[P2]], %[[P0]]
// CHECK: arith.select %[[ACTIVE]], %[[M1]], %[[M0]]
// CHECK: arith.select %[[ACTIVE]], %[[V1]], %[[V0]]
// CHECK: piper.plan.kernel "update_adamw_group0_64" [256, 256, 256, 256, 16, 8] "xrxxrr"{{$}}
piper.plan.kernel "update_adamw_group0_64" [256, 256, 256, 256, 16, 8] "xrxxrr" {optimizer = @group0, type = f32}

// -----

// SGD with momentum, weight decay and Nesterov; f64 parameters, f32 scalars.
piper.optimizer @group0 "sgd" slots ["momentum_buffer"] scalars ["lr", "weight_decay", "momentum", "one_minus_dampening"] config {nesterov = true, maximize = true}
// CHECK-LABEL: func.func @update(
// CHECK-COUNT-4: arith.extf
// CHECK: ^bb0(%[[G0:.*]]: f64, %[[P0:.*]]: f64, %[[B0:.*]]: f64):
// CHECK: %[[GRAD:.*]] = arith.mulf %[[G0]]
// CHECK: %[[MINUS:.*]] = arith.negf %[[GRAD]]
// CHECK: %[[WP:.*]] = arith.mulf %[[WD:.*]], %[[P0]]
// CHECK: %[[G1:.*]] = arith.addf %[[MINUS]], %[[WP]]
// CHECK: %[[SHARE:.*]] = arith.mulf %{{.*}}, %[[G1]]
// CHECK: %[[BM:.*]] = arith.mulf %[[B0]], %[[MOMENTUM:.*]] : f64
// CHECK: %[[B1:.*]] = arith.addf %[[BM]], %[[SHARE]]
// CHECK: %[[NB:.*]] = arith.mulf %[[MOMENTUM]], %[[B1]]
// CHECK: %[[G2:.*]] = arith.addf %[[G1]], %[[NB]]
// CHECK: %[[RATE:.*]] = arith.negf
// CHECK: %[[STEP:.*]] = arith.mulf %[[RATE]], %[[G2]]
// CHECK: arith.addf %[[P0]], %[[STEP]]
piper.plan.kernel "update" [512, 512, 512, 16, 8] "xrxrr" {optimizer = @group0, type = f64}

// -----

// Adam with amsgrad: L2 instead of decay, the largest second moment.
piper.optimizer @group0 "adam" slots ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"] scalars ["step_size", "bias_correction2_sqrt", "eps", "weight_decay"] config {beta1 = 0.25 : f64, beta2 = 0.5 : f64}
// CHECK-LABEL: func.func @update(
// CHECK: ^bb0(%{{.*}}: f32, %[[P0:.*]]: f32, %[[M0:.*]]: f32, %[[V0:.*]]: f32, %[[X0:.*]]: f32):
// CHECK: %[[WP:.*]] = arith.mulf %{{.*}}, %[[P0]]
// CHECK: %[[G:.*]] = arith.addf %{{.*}}, %[[WP]]
// lerp from the far end, as torch does for weights of at least one half.
// CHECK: %[[D:.*]] = arith.subf %[[G]], %[[M0]]
// CHECK: %[[C:.*]] = arith.constant 2.500000e-01
// CHECK: %[[DC:.*]] = arith.mulf %[[D]], %[[C]]
// CHECK: arith.subf %[[G]], %[[DC]]
// CHECK: %[[X1:.*]] = arith.maximumf %[[X0]], %[[V1:.*]] : f32
// CHECK: math.sqrt %[[X1]]
piper.plan.kernel "update" [256, 256, 256, 256, 256, 16, 8] "xrxxxrr" {optimizer = @group0, type = f32}
