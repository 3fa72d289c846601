// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Fingerprint.h"

#include <algorithm>
#include <cstring>

namespace piper::runtime {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
/// A cache line: what reading one byte of it costs anyway.
constexpr uint64_t kPiece = 64;
constexpr int kLanes = 4;

/// One to one in each argument, so that one changed word always shows.
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kMultiplier;
  return hash ^ (hash >> 29);
}

/// Lanes do not wait for each other's multiplications.
struct Hash {
  uint64_t lanes[kLanes];

  explicit Hash(uint64_t seed) {
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[lane] = mix(seed, uint64_t(lane) + 1);
  }
  void addPiece(const char *data) {
    uint64_t words[kPiece / sizeof(uint64_t)];
    std::memcpy(words, data, kPiece);
    for (uint64_t w = 0; w < kPiece / sizeof(uint64_t); ++w)
      lanes[w % kLanes] = mix(lanes[w % kLanes], words[w]);
  }
  void addWhole(const char *data, uint64_t bytes) {
    for (; bytes >= kPiece; data += kPiece, bytes -= kPiece)
      addPiece(data);
    char rest[kPiece] = {};
    std::memcpy(rest, data, bytes);
    if (bytes)
      addPiece(rest);
  }
  uint64_t value(uint64_t bytes) const {
    uint64_t result = bytes;
    for (uint64_t lane : lanes)
      result = mix(result, lane);
    return mix(result, 0);
  }
};

} // namespace

uint64_t fingerprint(const char *data, uint64_t bytes, uint64_t limit,
                     uint64_t seed) {
  Hash hash(seed);
  uint64_t pieces = std::max<uint64_t>(limit / kPiece, 2);
  if (bytes <= std::max(limit, pieces * kPiece)) {
    if (bytes)
      hash.addWhole(data, bytes);
    return hash.value(bytes);
  }
  // Piece p begins at last * p / gaps; that product may not fit in a word.
  uint64_t last = bytes - kPiece, gaps = pieces - 1;
  for (uint64_t piece = 0; piece < pieces; ++piece)
    hash.addPiece(data + last / gaps * piece + last % gaps * piece / gaps);
  return hash.value(bytes);
}

} // namespace piper::runtime
