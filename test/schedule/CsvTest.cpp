// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Spreadsheets as people leave them.

#include "passes/schedule/library/Csv.h"
#include "passes/schedule/library/Schedules.h"
#include "test/runtime/Check.h"
#include <random>

using namespace piper::schedule;

static Table read(const std::string &text) {
  std::string error;
  std::optional<Table> table = readCsv(text, "s.csv", error);
  if (!table)
    std::fprintf(stderr, "%s\n", error.c_str());
  CHECK(table);
  return *table;
}

static void refuse(const std::string &text, const std::string &message) {
  std::string error;
  CHECK(!readCsv(text, "s.csv", error));
  CHECK_CONTAINS(error, message);
}

static void checkSpreadsheets() {
  // 1F1B with stray blanks; the second rank begins one step later.
  std::string table = "rank 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3\n"
                      "rank 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n";
  CHECK(print(read("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
                   ", 1F0 ,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n")) == table);
  // Saved by a spreadsheet: byte order mark, CR LF, quotes, trailing commas and
  // lines.
  CHECK(print(read("\xEF\xBB\xBF\"0F0\",0F1,0B0 ,0F2,0B1,0F3,0B2,0B3,,\r\n"
                   ",1F0,1B0,1F1,1B1,1F2,\t1B2,1F3,1B3\r\n,,,\r\n\r\n")) ==
        table);
  // A V with divided backwards.
  CHECK(print(read("0F0,0F1,,3F0,3I0,3W0,,3F1,3I1,3W1,,0I0,0W0,0I1,0W1\n"
                   ",1F0,2F0,1F1,,2F1,2I0,1I0,2W0,1W0,2I1,1I1,2W1,1W1,\n")) ==
        "rank 0: 0F0 0F1 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 0I1 0W1\n"
        "rank 1: 1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 2I1 1I1 2W1 1W1\n");
  CHECK(print(read("0F0,( 0F1 ; 0B0 ) OVERLAP_F_B ,0B1\n")) ==
        "rank 0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1\n");
}

static void checkTransfers() {
  std::string text =
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD0\n";
  CHECK(writeCsv(read(text)) == text);
}

static void checkErrors() {
  refuse("0F0,0F0,0B0\n,1F0,1B0\n",
         "s.csv: row 1, column 2: expected every action once, got 0F0 again "
         "(first at rank 0, step 0)\n"
         "    0F0,0F0,0B0\n"
         "        ^^^\n");
  refuse("0F0,,,0W0,0I0\n,1F0,1B0,,\n",
         "s.csv: row 1, column 4: expected 0I0 before 0W0, got it after\n"
         "    0F0,,,0W0,0I0\n"
         "          ^^^");
  refuse("0F0,1F0,,0B0\n,,1B0,\n",
         "s.csv: row 2, column 3: expected stage 1 on one rank, got 1B0 on "
         "rank 1 and the same microbatch on rank 0\n"
         "    ,,1B0,\n"
         "      ^^^\n");
  refuse("0F0,0F1,0B0\n,1F0,1B0,1F1,1B1\n",
         "s.csv: row 1, column 2: expected a backward after 0F1 (0B1, or 0I1 "
         "and 0W1), got none\n");
  refuse("0F0,0Q1,0B0\n,1F0,1B0\n",
         "s.csv: row 1, column 2: expected an action such as 2F0 (stage; F, B, "
         "I or W; microbatch), got '0Q1'\n"
         "    0F0,0Q1,0B0\n"
         "        ^^^");
  refuse("0F0,,0B0,0W0\n,1F0,1B0\n",
         "s.csv: row 1, column 4: expected either B or I and W, got both 0B0 "
         "and 0W0\n");
  refuse("0F0,0B0\n,2F0,2B0\n",
         "s.csv: row 2, column 2: expected stage 1 on some rank, got none "
         "although there is stage 2\n");
  refuse(
      "0F0,0B0\n\n1F0,1B0\n",
      "s.csv: row 2, column 1: expected actions of rank 1, got an empty row");
  refuse("", "s.csv: expected a row of actions for every rank, got an empty");
  refuse("\n \r\n,,\n", "got an empty file");
  refuse("0F0,0B0x\n", "row 1, column 2: expected an action such as 2F0");
  refuse("0F99999999999999999999\n", "got '0F99999999999999999999'");
  refuse("0F0,(0F1;0B0)\n", "expected actions that overlap, such as");
  refuse("0F0,(0F1;)OVERLAP_F_B\n", "expected actions between ( and )");
  refuse("0F0,((0F1;0B0)OVERLAP_F_B;0B0)OVERLAP_F_B\n", "row 1, column 2: ");
  refuse("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n0B", "row 3, column 1: ");
  // Far to the right only what is near is shown.
  std::string wide(600, ',');
  refuse("0F0" + wide + "0X0\n", "row 1, column 601: ");
  refuse("0F0," + std::string(3000, '\x80') + "\n", "got '?????");
}

static void checkRoundTrip() {
  for (const ScheduleInfo &info : getSchedules()) {
    std::string error;
    std::optional<Table> table =
        buildSchedule(info.name, {getDefaultStages(info.name, 4), 9, 4}, error);
    CHECK(table);
    CHECK(read(writeCsv(*table)) == *table);
  }
}

/// Files that were good before some characters changed: read or refused, never
/// worse. What is read is written and read again.
static void checkDamagedFiles() {
  std::minstd_rand random(1);
  auto draw = [&](size_t end) { return random() % end; };
  constexpr std::string_view characters = "0123456789FBIWSR_;(),\n\r\" \t\xFF-";
  int numRead = 0, numRefused = 0;
  for (int round = 0; round < 4000; ++round) {
    const auto &schedules = getSchedules();
    const ScheduleInfo &info = schedules[draw(schedules.size())];
    std::string error;
    std::string text = writeCsv(*buildSchedule(
        info.name, {getDefaultStages(info.name, 2), 3, 2}, error));
    for (size_t i = 0, count = 1 + draw(3); i < count; ++i) {
      size_t at = draw(text.size());
      if (draw(2))
        text[at] = characters[draw(characters.size())];
      else
        text.erase(at, 1 + draw(4));
      if (text.empty())
        text = "0";
    }
    std::optional<Table> table = readCsv(text, "s.csv", error);
    table ? ++numRead : ++numRefused;
    CHECK(table.has_value() == error.empty());
    if (table)
      CHECK(read(writeCsv(*table)) == *table);
  }
  CHECK(numRead > 20 && numRefused > 20);
}

int main() {
  checkSpreadsheets();
  checkTransfers();
  checkErrors();
  checkRoundTrip();
  checkDamagedFiles();
  return 0;
}
