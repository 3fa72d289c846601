// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeWait(ActionContext &context, const PreparedAction &action) {
  SharedWord &event = context.events[action.record->imm[0]];
  context.waiter->until(event, context.run, [] { return -1; });
  context.waiter->reach(event.stamp);
}

} // namespace piper::runtime
