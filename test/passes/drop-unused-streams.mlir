// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-drop-unused-streams | FileCheck %s

// CHECK-NOT: @unused
// CHECK: piper.stream @used
// CHECK-NOT: @unused
piper.stream @unused
piper.stream @used
func.func private @user() attributes {stream = @used}
