// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeWait(ActionContext &context, const PreparedAction &action) {
  context.waiter->until(context.events[action.record->imm[0]], context.run,
                        [] { return -1; });
}

} // namespace piper::runtime
