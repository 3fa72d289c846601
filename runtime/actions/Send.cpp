// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeSend(ActionContext &context, const PreparedAction &action) {
  context.communicators[action.record->imm[0]]->send(
      *context.waiter, context.address(action.operands[0]),
      action.record->imm[1]);
}

} // namespace piper::runtime
