// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_BINDINGSSIMULATE_H
#define PIPER_RUNTIME_BINDINGSSIMULATE_H

#include "runtime/delay/DelayDevice.h"

#include <nanobind/nanobind.h>

namespace piper::runtime {

/// {"duration": seconds, "actions": [(rank, stream, opcode, label, kernel,
/// bytes, start, end, waited, where)], "critical_path": [positions in
/// actions]}.
nanobind::dict simulatePlan(const plan::Plan &plan, const DelayCosts &costs,
                            const std::string &entry, uint64_t flags);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_BINDINGSSIMULATE_H
