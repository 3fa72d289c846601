// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011): a function of seed, counter and position with no other state.
#include "runtime/cpu/kernels/Kernels.h"

#include <algorithm>
#include <array>

namespace {

using Block = std::array<uint32_t, 4>;

Block philox(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xD2511F53) * counter[0];
    uint64_t product1 = uint64_t(0xCD9E8D57) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

} // namespace

void piper_random_uniform(void *const *args, const int64_t *imm) {
  const auto *state = static_cast<const int64_t *>(args[0]);
  auto *out = static_cast<float *>(args[1]);
  auto seed = static_cast<uint64_t>(state[0]);
  auto counter = static_cast<uint64_t>(state[1]);
  int64_t count = imm[0];
  for (int64_t first = 0; first < count; first += 4) {
    Block block = philox(
        {static_cast<uint32_t>(first / 4), static_cast<uint32_t>(imm[1]),
         static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32)},
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    // The upper 24 bits: as many as a float in [0, 1) can hold.
    for (int64_t i = first; i < std::min(first + 4, count); ++i)
      out[i] = static_cast<float>(block[i - first] >> 8) * 0x1p-24f;
  }
}
