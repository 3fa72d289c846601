// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeRecv(ActionContext &context, const PreparedAction &action) {
  context.communicators[action.record->imm[0]]->recv(
      *context.waiter, context.address(action.operands[0]),
      action.record->imm[1]);
}

} // namespace piper::runtime
