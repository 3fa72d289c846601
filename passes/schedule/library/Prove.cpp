// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- Prove.cpp - whether a table can run --------------------------------===//

#include "passes/schedule/library/Prove.h"
#include "passes/schedule/library/Check.h"
#include "passes/schedule/library/HappensBefore.h"

using namespace piper::schedule;

std::optional<Problem> piper::schedule::proveTable(const Table &table) {
  if (std::optional<Problem> problem = checkTable(table))
    return problem;
  for (bool sendsWait : {false, true}) {
    HappensBefore order(table, sendsWait);
    if (order.getProblem())
      return order.getProblem();
    if (std::optional<Problem> deadlock = order.findDeadlock())
      return deadlock;
    if (!hasTransfers(table))
      return std::nullopt;
  }
  return std::nullopt;
}
