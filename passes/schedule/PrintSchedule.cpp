// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===- PrintSchedule.cpp - a schedule as text -----------------------------===//

#include "passes/Passes.h"
#include "passes/schedule/library/Csv.h"
#include "passes/schedule/library/Prove.h"
#include "passes/schedule/library/Schedules.h"
#include "passes/schedule/library/Simulate.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

namespace piper {
#define GEN_PASS_DEF_PRINTSCHEDULE
#include "passes/Passes.h.inc"

namespace {
struct PrintSchedule : public impl::PrintScheduleBase<PrintSchedule> {
  using PrintScheduleBase::PrintScheduleBase;

  void runOnOperation() override {
    std::string error;
    std::optional<schedule::Table> table = getTable(error);
    std::optional<std::string> text;
    if (table)
      text = print(*table, error);
    if (!text) {
      getOperation().emitError(error);
      return signalPassFailure();
    }
    llvm::outs() << *text;
  }

private:
  std::optional<schedule::Table> getTable(std::string &error) {
    if (!file.empty()) {
      auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
      if (buffer)
        return schedule::readCsv((*buffer)->getBuffer(), file.getValue(),
                                 error);
      error = file + ": " + buffer.getError().message();
      return std::nullopt;
    }
    int64_t numRanks = ranks
                           ? static_cast<int64_t>(ranks)
                           : schedule::getDefaultRanks(name.getValue(), stages);
    std::optional<schedule::Table> table = schedule::buildSchedule(
        name.getValue(), {stages, microbatches, numRanks}, error);
    if (!table)
      return std::nullopt;
    if (std::optional<schedule::Problem> problem =
            schedule::proveTable(*table)) {
      error = schedule::printProblem(*table, *problem);
      return std::nullopt;
    }
    return table;
  }

  std::optional<std::string> print(const schedule::Table &table,
                                   std::string &error) {
    if (format == "rows")
      return schedule::print(table);
    if (format == "csv")
      return schedule::writeCsv(table);
    if (format != "times" && format != "timeline") {
      error = "expected the format rows, csv, times or timeline, got " + format;
      return std::nullopt;
    }
    std::optional<schedule::Times> times = schedule::simulate(
        table, schedule::Costs(), /*sendsWait=*/false, error);
    if (!times)
      return std::nullopt;
    return format == "times" ? schedule::printTimes(*times)
                             : schedule::printTimeline(table, *times);
  }
};
} // namespace
} // namespace piper
