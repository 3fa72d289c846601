// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeLaunch(ActionContext &context, const PreparedAction &action) {
  void **arguments = context.arguments.data();
  for (const Operand &operand : action.operands)
    *arguments++ = context.address(operand);
  *arguments = context.stream->workspace();
  context.stream->launch(action.kernel, context.arguments.data());
}

} // namespace piper::runtime
