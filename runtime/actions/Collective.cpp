// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeCollective(ActionContext &context, const PreparedAction &action) {
  plan::CollectiveOperands operands = plan::collectiveOperands(*action.record);
  Collective operation = {action.record->opcode,
                          operands.dtype,
                          operands.reduction,
                          operands.count,
                          operands.root,
                          context.address(action.operands[0]),
                          context.address(action.operands[1])};
  context.communicators[operands.communicator]->collective(*context.waiter,
                                                           operation);
}

} // namespace piper::runtime
