// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Utf8.h"

#include <cstdint>

namespace piper::plan {
namespace {

/// Bytes behind a lead byte, or -1 if nothing begins with it.
int numFollowing(unsigned char lead) {
  if (lead < 0x80)
    return 0;
  if (lead >> 5 == 0x6)
    return 1;
  if (lead >> 4 == 0xe)
    return 2;
  return lead >> 3 == 0x1e ? 3 : -1;
}

} // namespace

bool isUtf8(std::string_view text) {
  static constexpr uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char lead = static_cast<unsigned char>(text[i]);
    int following = numFollowing(lead);
    if (following < 0 || text.size() - i <= size_t(following))
      return false;
    uint32_t code = following ? lead & (0x3f >> following) : lead;
    for (int k = 0; k < following; ++k) {
      unsigned char next = static_cast<unsigned char>(text[++i]);
      if (next >> 6 != 0x2)
        return false;
      code = code << 6 | (next & 0x3f);
    }
    if (code < smallest[following] || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
      return false;
  }
  return true;
}

} // namespace piper::plan
