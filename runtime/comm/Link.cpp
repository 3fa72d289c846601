// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/Link.h"

namespace piper::runtime {

uint64_t bytesOnLink(const Collective &operation, uint64_t size) {
  if (size < 2)
    return 0;
  uint64_t bytes = operation.count * plan::byteWidth(operation.dtype);
  switch (operation.opcode) {
  case plan::Opcode::AllReduce:
    return 2 * (bytes * (size - 1) / size);
  case plan::Opcode::Broadcast:
    return bytes;
  default:
    // `count` is that of one member's part.
    return bytes * (size - 1);
  }
}

} // namespace piper::runtime
