// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeRecord(ActionContext &context, const PreparedAction &action) {
  SharedWord &event = context.events[action.record->imm[0]];
  event.stamp = context.waiter->stamp();
  signal(event, context.run);
}

} // namespace piper::runtime
