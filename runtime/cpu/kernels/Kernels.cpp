// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/cpu/kernels/Kernels.h"

namespace piper::runtime {

const std::vector<KernelSymbol> &kernelSymbols() {
#define KERNEL(NAME)                                                           \
  {                                                                            \
    #NAME, reinterpret_cast<const void *>(&::NAME)                             \
  }
  static const std::vector<KernelSymbol> symbols = {
      KERNEL(piper_sgemm),
      KERNEL(piper_sgemm_batched),
      KERNEL(piper_gemm_bf16),
      KERNEL(piper_attention_forward),
      KERNEL(piper_attention_backward),
      KERNEL(piper_embedding_backward),
      KERNEL(piper_index_put_accumulate),
      KERNEL(piper_scatter_add),
      KERNEL(piper_topk),
      KERNEL(piper_sort),
      KERNEL(piper_cumsum),
      KERNEL(piper_random_uniform),
  };
#undef KERNEL
  return symbols;
}

} // namespace piper::runtime
