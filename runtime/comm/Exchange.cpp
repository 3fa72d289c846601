// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What hosts tell each other between runs: short, so that the headers of the
// ranks have room for it, or in several parts.
#include "runtime/comm/World.h"

#include "runtime/Error.h"

#include <algorithm>
#include <cstring>

namespace piper::runtime {
namespace {

void writePart(ExchangePart &slot, const std::string &text, uint64_t first) {
  slot.total = text.size();
  if (first < text.size())
    std::memcpy(slot.bytes, text.data() + first,
                std::min(ExchangePart::kBytes, text.size() - first));
}

void readPart(const ExchangePart &slot, std::string &text) {
  // Another process wrote it: never more than there is.
  if (text.size() < slot.total)
    text.append(slot.bytes, std::min<uint64_t>(ExchangePart::kBytes,
                                               slot.total - text.size()));
}

} // namespace

void World::givePart(const std::string &text, uint64_t first) {
  throwIfLost();
  ++partNumber;
  for (uint32_t rank : ownRanks) {
    RankHeader &header = segment(rank).header();
    writePart(header.slots[partNumber % 2], text, first);
    signal(header.parts, partNumber);
  }
}

const ExchangePart &World::awaitPart(uint32_t rank,
                                     const Interrupt &interrupted) {
  RankHeader &header = segment(rank).header();
  auto lookFor = [&] {
    bool left = header.life.load() == Life::Closed;
    if (left && !reached(header.parts, partNumber))
      abortLeft(rank, currentRun() + 1);
  };
  awaitHost(rank, header.parts, partNumber, interrupted, lookFor);
  return header.slots[partNumber % 2];
}

bool World::offer(const std::string &mine) {
  if (mine.size() > ExchangePart::kBytes)
    throw Error("expected at most " + std::to_string(ExchangePart::kBytes) +
                " bytes, got " + std::to_string(mine.size()));
  givePart(mine, 0);
  return !offersDiffer();
}

std::vector<std::string> World::collect(const Interrupt &interrupted) {
  std::vector<std::string> texts(size());
  for (uint32_t rank = 0; rank < size(); ++rank)
    readPart(awaitPart(rank, interrupted), texts[rank]);
  return texts;
}

bool World::offersDiffer() const {
  // Who is there stays there until this process, too, gives its next part.
  const char *mine = segment(ownRanks[0]).header().slots[partNumber % 2].bytes;
  for (const std::unique_ptr<Segment> &each : segments)
    if (each && reached(each->header().parts, partNumber) &&
        std::memcmp(each->header().slots[partNumber % 2].bytes, mine,
                    kAgreed) != 0)
      return true;
  return false;
}

void World::stopDiffering() {
  for (const std::unique_ptr<Segment> &each : segments)
    if (each)
      each->header().differs.store(1);
}

std::vector<std::string> World::exchange(const std::string &mine,
                                         const Interrupt &interrupted) {
  if (ownRanks.size() == size())
    return {mine};
  std::vector<std::string> texts(size());
  uint64_t longest = 0;
  for (uint64_t first = 0; first == 0 || first < longest;
       first += ExchangePart::kBytes) {
    givePart(mine, first);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const ExchangePart &part = awaitPart(rank, interrupted);
      longest = std::max(longest, part.total);
      readPart(part, texts[rank]);
    }
  }
  return texts;
}

} // namespace piper::runtime
