// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/actions/Actions.h"

namespace piper::runtime {

void executeAccumulate(ActionContext &context, const PreparedAction &action) {
  const std::vector<uint64_t> &imm = action.record->imm;
  bool add = imm[2] == plan::kAccumulateAdd;
  if (imm[2] < plan::kAccumulateWrite)
    add = !((context.flags >> imm[2]) & 1);
  context.stream->accumulate(plan::DType(imm[0]), add,
                             context.address(action.operands[0]),
                             context.address(action.operands[1]), imm[1]);
}

} // namespace piper::runtime
