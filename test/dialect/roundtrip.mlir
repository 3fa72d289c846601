// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --verify-roundtrip | FileCheck %s

// CHECK: piper.stream @comm {sms = 20 : i64}
piper.stream @comm {sms = 20 : i64}
