// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Csv.h - schedules as spreadsheets ------------------------*- C++ -*-===//
//
// The format of torch.distributed.pipelining: a row per rank, a cell per step,
// `2F0`, `(0F3;3B1)OVERLAP_F_B` or blank, with or without communication
// (`2SEND_F0`). What a spreadsheet makes of it is read as well: blanks around
// cells, quotes, a byte order mark, rows of different lengths, CR LF.
//
//===----------------------------------------------------------------------===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_CSV_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_CSV_H

#include "passes/schedule/library/Table.h"

namespace piper::schedule {

/// The table that `text` holds, proved (Prove.h), blank cells included. Where
/// it is none, nothing, and an `error` that begins with `source` and points at
/// the cell.
std::optional<Table> readCsv(std::string_view text, std::string_view source,
                             std::string &error);

std::string writeCsv(const Table &table);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_CSV_H
