// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-print-schedule="name=1f1b stages=4 microbatches=8" | FileCheck %s --check-prefix=ONE
// RUN: piper-opt %s --piper-print-schedule="name=gpipe stages=2 microbatches=3" | FileCheck %s --check-prefix=GPIPE
// RUN: piper-opt %s --piper-print-schedule="name=1f1b stages=4 microbatches=2" | FileCheck %s --check-prefix=FEW
// RUN: piper-opt %s --piper-print-schedule="name=1f1b stages=1 microbatches=1" | FileCheck %s --check-prefix=LEAST
// RUN: not piper-opt %s --piper-print-schedule="name=zigzag" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not piper-opt %s --piper-print-schedule="name=1f1b stages=4 ranks=2" 2>&1 | FileCheck %s --check-prefix=RANKS
// RUN: not piper-opt %s --piper-print-schedule="name=gpipe microbatches=0" 2>&1 | FileCheck %s --check-prefix=NONE

// Stage s of p runs p - s microbatches ahead, then alternates.
// ONE:      rank 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7{{$}}
// ONE-NEXT: rank 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7{{$}}
// ONE-NEXT: rank 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7{{$}}
// ONE-NEXT: rank 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7{{$}}

// GPIPE:      rank 0: 0F0 0F1 0F2 0B0 0B1 0B2{{$}}
// GPIPE-NEXT: rank 1: 1F0 1F1 1F2 1B0 1B1 1B2{{$}}

// Fewer microbatches than stages: the early stages never get beyond warmup.
// FEW:      rank 0: 0F0 0F1 0B0 0B1{{$}}
// FEW-NEXT: rank 1: 1F0 1F1 1B0 1B1{{$}}
// FEW-NEXT: rank 2: 2F0 2F1 2B0 2B1{{$}}
// FEW-NEXT: rank 3: 3F0 3B0 3F1 3B1{{$}}

// LEAST: rank 0: 0F0 0B0{{$}}

// UNKNOWN: error: expected a schedule among gpipe 1f1b, got zigzag
// RANKS: error: expected one stage per rank for 1f1b, got 4 stages on 2 ranks
// NONE: error: expected at least 1 stage and 1 microbatch, got 2 and 0
