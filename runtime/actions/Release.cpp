// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeRelease(ActionContext &context, const PreparedAction &action) {
  // Messages are counted in the plan; those skipped in this run never left.
  uint64_t messages = action.record->imm[1] + 1;
  if (!action.sendPredicates.empty()) {
    if (!plan::holds(action.sendPredicates.back(), context.flags))
      return;
    messages = 0;
    for (uint32_t predicate : action.sendPredicates)
      messages += plan::holds(predicate, context.flags);
  }
  context.communicators[action.record->imm[0]]->release(*context.waiter,
                                                        messages);
}

} // namespace piper::runtime
