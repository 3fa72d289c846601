// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: piper-opt %s --piper-print-schedule="name=1f1b stages=4 microbatches=8" | FileCheck %s --check-prefix=ONE
// RUN: piper-opt %s --piper-print-schedule="name=gpipe stages=2 microbatches=3" | FileCheck %s --check-prefix=GPIPE
// RUN: piper-opt %s --piper-print-schedule="name=1f1b stages=4 microbatches=2" | FileCheck %s --check-prefix=FEW
// RUN: piper-opt %s --piper-print-schedule="name=1f1b stages=1 microbatches=1" | FileCheck %s --check-prefix=LEAST
// RUN: piper-opt %s --piper-print-schedule="name=dualpipe stages=2 microbatches=4" | FileCheck %s --check-prefix=DUAL
// RUN: piper-opt %s --piper-print-schedule="name=gpipe microbatches=2 format=csv" | FileCheck %s --check-prefix=CSV
// RUN: piper-opt %s --piper-print-schedule="microbatches=2 format=timeline" | FileCheck %s --check-prefix=TIMELINE
// RUN: piper-opt %s --piper-print-schedule="name=gpipe stages=4 microbatches=8 format=times" | FileCheck %s --check-prefix=TIMES
// RUN: piper-opt %s --piper-print-schedule="file=%S/Inputs/1f1b.csv" | FileCheck %s --check-prefix=FILE
// RUN: not piper-opt %s --piper-print-schedule="file=%S/Inputs/looped.csv" 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: not piper-opt %s --piper-print-schedule="format=svg" 2>&1 | FileCheck %s --check-prefix=FORMAT
// RUN: not piper-opt %s --piper-print-schedule="file=none.csv" 2>&1 | FileCheck %s --check-prefix=NOFILE
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

// Both directions of DualPipe; what may overlap shares a cell.
// DUAL:      rank 0: 0F0 1F2 0F1 1B2 (1F3;0B0)OVERLAP_F_B 1B3 0I1 0W1{{$}}
// DUAL-NEXT: rank 1: 0F2 1F0 0F3 1B0 (1F1;0B2)OVERLAP_F_B 1B1 0I3 0W3{{$}}

// CSV:      0F0,0F1,0B0,0B1{{$}}
// CSV-NEXT: 1F0,1F1,1B0,1B1{{$}}

// TIMELINE:      rank 0 | 0F0 0F1         0B0----     0B1----{{$}}
// TIMELINE-NEXT: rank 1 |     1F0 1B0---- 1F1 1B1----{{$}}

// Huang et al.: (m + p - 1)(F + B) on the first rank.
// TIMES: makespan 33, bubble 9
// TIMES: rank first start    last end        busy      bubble   peak live
// TIMES: {{^}}   0           0          33          24           9           8{{$}}

// FILE: rank 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3{{$}}
// FILE: rank 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3{{$}}

// BAD: error: {{.*}}looped.csv: row 1, column 4: expected an order without deadlock, got ranks that wait for each other where a send waits for its receiver: rank 0 at 0SEND_F1 waits for 1RECV_F1 of rank 1; rank 1 at 1SEND_F0 waits for 2RECV_F0 of rank 0
// BAD-NEXT: 0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,
// BAD-NEXT: {{^ +\^\^\^\^\^\^\^\^$}}
// BAD-NEXT: rank 0 {{ *}}rank 1
// BAD: step 2 {{ *}}0F1 {{ *}}1SEND_F0 {{ *}}<-- rank 1 1SEND_F0 waits for 2RECV_F0 of rank 0
// BAD: step 3 {{ *}}0SEND_F1 {{ *}}1RECV_F1 {{ *}}<-- rank 0 0SEND_F1 waits for 1RECV_F1 of rank 1

// FORMAT: error: expected the format rows, csv, times or timeline, got svg
// NOFILE: error: none.csv: No such file or directory

// UNKNOWN: error: expected a schedule among gpipe 1f1b interleaved_1f1b looped_bfs zb_h1 zb_h2 interleaved_zb zbv dualpipe dualpipev, got zigzag
// RANKS: error: expected one stage per rank for 1f1b, got 4 stages on 2 ranks
// NONE: error: expected at least 1 stage and 1 microbatch, got 2 and 0
