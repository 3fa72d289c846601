// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef PIPER_RUNTIME_COMM_REDUCE_H
#define PIPER_RUNTIME_COMM_REDUCE_H

#include "runtime/plan/Plan.h"

namespace piper::runtime {

/// targets[t][dstElement + i] = reduction over s = 0, 1, 2, … in this order of
/// sources[s][srcElement + i], for i < count and every target. A target may be
/// a source in the same place. bf16 and f16 are reduced in f32 and rounded to
/// nearest even once. The largest of i1 is "or", their sum too.
void reduceElements(plan::DType dtype, plan::Reduction reduction,
                    char *const *sources, size_t numSources,
                    uint64_t srcElement, uint64_t count, char *const *targets,
                    size_t numTargets, uint64_t dstElement);

/// dst[i] = (add ? dst[i] : 0) + src[i].
void accumulateElements(plan::DType dtype, bool add, char *dst, const char *src,
                        uint64_t count);

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_REDUCE_H
