// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole tensors of the host from and to the parts that ranks hold.
#ifndef PIPER_RUNTIME_STATEACCESS_H
#define PIPER_RUNTIME_STATEACCESS_H

#include "runtime/comm/World.h"

namespace piper::runtime {

/// The number of the state `name`. Throws Error if there is none.
uint32_t findState(const plan::Plan &plan, const std::string &name);

/// Fills `tensor` (dense, row-major) from the ranks that hold the state; of
/// several holders the lowest rank is read. Throws Error if ranks hold only a
/// part. No run may be in progress on any rank.
void readState(const World &world, uint32_t state, char *tensor);

/// Fills `tensor` from what `rank` itself holds; false if that is not all of
/// the state. No run may be in progress on that rank.
bool readCopy(const World &world, uint32_t rank, uint32_t state, char *tensor);

/// Writes `tensor` to every local rank that holds a part of the state.
void writeState(const World &world, uint32_t state, const char *tensor);

/// Bytes of the whole tensor.
uint64_t stateBytes(const plan::State &state);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_STATEACCESS_H
