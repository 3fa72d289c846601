// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeFillZero(ActionContext &context, const PreparedAction &action) {
  context.stream->fillZero(context.address(action.operands[0]),
                           action.record->imm[0]);
}

} // namespace piper::runtime
