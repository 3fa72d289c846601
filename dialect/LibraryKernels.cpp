//===- LibraryKernels.cpp - Signatures of the kernel library --------------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LibraryKernels.h"

using namespace piper;

llvm::ArrayRef<KernelSignature> piper::kernelSignatures() {
  const KernelOperand q{"f32", "B H T D"}, kv{"f32", "B Hk S D"},
      lse{"f32", "B H T"};
  static const KernelSignature table[] = {
      {"attention_forward", "B H Hk T S D causal", true, {q, kv, kv}, {q, lse}},
      {"attention_backward",
       "B H Hk T S D causal",
       true,
       {q, q, kv, kv, q, lse},
       {q, kv, kv}},
      {"embedding_backward",
       "N D V padding_idx",
       false,
       {{"f32", "N D"}, {"i64", "N"}},
       {{"f32", "V D"}}},
      {"index_put_accumulate",
       "N D V",
       false,
       {{"f32", "V D"}, {"i64", "N"}, {"f32", "N D"}},
       {{"f32", "V D"}}},
      {"scatter_add",
       "outer N inner V",
       false,
       {{"f32", "outer V inner"},
        {"i64", "outer N inner"},
        {"f32", "outer N inner"}},
       {{"f32", "outer V inner"}}},
      {"topk",
       "outer N k largest sorted",
       false,
       {{"f32", "outer N"}},
       {{"f32", "outer k"}, {"i64", "outer k"}}},
      {"sort",
       "outer N descending",
       false,
       {{"f32", "outer N"}},
       {{"f32", "outer N"}, {"i64", "outer N"}}},
      {"cumsum",
       "outer N inner",
       false,
       {{"f32", "outer N inner"}},
       {{"f32", "outer N inner"}}},
      {"random_uniform", "n stream", false, {{"i64", "2"}}, {{"f32", "n"}}},
  };
  return table;
}

const KernelSignature *piper::findKernelSignature(llvm::StringRef symbol) {
  for (const KernelSignature &signature : kernelSignatures())
    if (signature.symbol == symbol)
      return &signature;
  return nullptr;
}
