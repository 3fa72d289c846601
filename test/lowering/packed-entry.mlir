// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-packed-entry | FileCheck %s

// CHECK: llvm.func internal @k.nest0(%{{.*}}: !llvm.ptr) attributes {no_inline, no_unwind}
llvm.func @k.nest0(%x: !llvm.ptr) { llvm.return }

// CHECK: llvm.func @k(%[[ARGS:.*]]: !llvm.ptr) attributes {no_unwind, piper.inputs = 1 : i64, piper.results = 1 : i64, piper.workspace_bytes = 0 : i64}
// CHECK: %[[SLOT:.*]] = llvm.getelementptr %[[ARGS]][1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK: %[[SECOND:.*]] = llvm.load %[[SLOT]]
// CHECK: llvm.call @k.body(%{{.*}}, %[[SECOND]])
// CHECK: llvm.func internal @k.body
llvm.func @k(%x: !llvm.ptr, %y: !llvm.ptr) attributes {piper.inputs = 1 : i64, piper.results = 1 : i64, piper.workspace_bytes = 0 : i64} {
  llvm.call @k.nest0(%x) : (!llvm.ptr) -> ()
  llvm.return
}
