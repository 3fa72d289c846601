// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeRecord(ActionContext &context, const PreparedAction &action) {
  signal(context.events[action.record->imm[0]], context.run);
}

} // namespace piper::runtime
