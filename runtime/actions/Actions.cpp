// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

ActionFunction functionOf(plan::Opcode opcode) {
  static constexpr ActionFunction functions[plan::kNumOpcodes] = {
      executeLaunch,     executeCopy,       executeFillZero,
      executeAccumulate, executeRecord,     executeWait,
      executeSend,       executeRecv,       executeRelease,
      executeCollective, executeCollective, executeCollective,
      executeCollective, executeCollective};
  return functions[size_t(opcode)];
}

} // namespace piper::runtime
