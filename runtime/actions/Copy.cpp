// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeCopy(ActionContext &context, const PreparedAction &action) {
  context.stream->copy(context.address(action.operands[0]),
                       context.address(action.operands[1]),
                       action.record->imm[0]);
}

} // namespace piper::runtime
