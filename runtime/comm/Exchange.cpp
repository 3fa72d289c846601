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

std::vector<std::string> World::exchange(const std::string &mine,
                                         const Interrupt &interrupted) {
  throwIfAborted();
  if (ownRanks.size() == size())
    return {mine};
  std::vector<std::string> texts(size());
  uint64_t longest = 0;
  for (uint64_t first = 0; first == 0 || first < longest;
       first += ExchangePart::kBytes) {
    ++partNumber;
    for (uint32_t rank : ownRanks) {
      RankHeader &header = segment(rank).header();
      writePart(header.slots[partNumber % 2], mine, first);
      signal(header.parts, partNumber);
    }
    for (uint32_t rank = 0; rank < size(); ++rank) {
      RankHeader &header = segment(rank).header();
      auto lookFor = [&] {
        bool left = header.life.load() == Life::Closed;
        if (left && !reached(header.parts, partNumber))
          abortLeft(rank, currentRun() + 1);
      };
      awaitHost(rank, header.parts, partNumber, interrupted, lookFor);
      const ExchangePart &slot = header.slots[partNumber % 2];
      longest = std::max(longest, slot.total);
      readPart(slot, texts[rank]);
    }
  }
  return texts;
}

} // namespace piper::runtime
