// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A link that takes stated times and carries nothing, for devices without data.
#ifndef PIPER_RUNTIME_COMM_LINK_H
#define PIPER_RUNTIME_COMM_LINK_H

#include "runtime/Communicator.h"

namespace piper::runtime {

struct Link {
  uint64_t latencyNs = 0;
  double nsPerByte = 0;

  uint64_t durationNs(uint64_t bytes) const {
    return uint64_t(double(bytes) * nsPerByte);
  }
};

/// Bytes that each of `size` members sends in a bandwidth-optimal algorithm
/// (Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
/// workstations", 2009): all_reduce of n bytes 2 n (size - 1) / size, half of
/// it for its two halves reduce_scatter and all_gather; all_to_all all but the
/// own part, broadcast n.
uint64_t bytesOnLink(const Collective &operation, uint64_t size);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_LINK_H
