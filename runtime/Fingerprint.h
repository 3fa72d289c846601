// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_FINGERPRINT_H
#define PIPER_RUNTIME_FINGERPRINT_H

#include <cstdint>

namespace piper::runtime {

/// A hash of memory, the same on every machine of the same byte order. Tells
/// what differs by accident, not what somebody made to look alike. Of more than
/// `limit` bytes it takes about so many: short pieces all over it, the first
/// and the last among them. `seed`: the fingerprint of what comes before.
uint64_t fingerprint(const char *data, uint64_t bytes, uint64_t limit,
                     uint64_t seed);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_FINGERPRINT_H
