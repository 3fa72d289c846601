// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Transfers.h - communication between ranks ----------------*- C++ -*-===//

#ifndef PIPER_PASSES_SCHEDULE_LIBRARY_TRANSFERS_H
#define PIPER_PASSES_SCHEDULE_LIBRARY_TRANSFERS_H

#include "passes/schedule/library/Table.h"

namespace piper::schedule {

/// A proved table with a SEND behind every action whose result another rank
/// uses, and the RECV on that rank, in one order over all ranks: the order of
/// torch.distributed.pipelining. So no rank waits for ever even where a send
/// waits for its receiver. A table that has transfers stays as it is.
Table addTransfers(const Table &table);

} // namespace piper::schedule

#endif // PIPER_PASSES_SCHEDULE_LIBRARY_TRANSFERS_H
