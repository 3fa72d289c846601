// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel library: what compiled kernels call instead of computing it in
// loops of their own. Every function has the signature
//
//   void piper_<name>(void *const *args, int64_t const *imm)
//
// where args points to the inputs and then the outputs, dense and row-major
// unless said otherwise, and imm holds the sizes that are named beside each
// declaration. Outputs are written completely and never overlap inputs.
// All functions are re-entrant, run on the calling thread alone and give the
// same bits for the same inputs. An index outside its range is reported
// through piper_kernel_fail, and nothing is read or written for it.
#ifndef PIPER_RUNTIME_CPU_KERNELS_KERNELS_H
#define PIPER_RUNTIME_CPU_KERNELS_KERNELS_H

#include <cstdint>
#include <vector>

extern "C" {
/// c = op(a) op(b), or c += …; imm: batch, M, N, K, transpose a, transpose b,
/// accumulate, row strides of a, b, c, batch strides of a, b, c (in elements).
void piper_sgemm(void *const *args, const int64_t *imm);
void piper_sgemm_batched(void *const *args, const int64_t *imm);
/// The same of a and b of bf16, summed in f32; imm: as above, then whether c is
/// of bf16 (and not accumulated to) instead of f32.
void piper_gemm_bf16(void *const *args, const int64_t *imm);

/// q[B,H,T,D] k[B,Hk,S,D] v[B,Hk,S,D] -> o[B,H,T,D] lse[B,H,T];
/// imm: B, H, Hk, T, S, D, causal, bits of the f64 scale. Query i attends to
/// keys 0 to i when causal, as in torch's scaled_dot_product_attention.
void piper_attention_forward(void *const *args, const int64_t *imm);
/// do q k v o lse -> dq dk dv; imm as above.
void piper_attention_backward(void *const *args, const int64_t *imm);

/// dy[N,D] index[N] -> dw[V,D]; imm: N, D, V, padding index or -1.
void piper_embedding_backward(void *const *args, const int64_t *imm);
/// base[V,D] index[N] value[N,D] -> out[V,D]; imm: N, D, V. Negative indices
/// count from the end.
void piper_index_put_accumulate(void *const *args, const int64_t *imm);
/// base[outer,V,inner] index[outer,N,inner] source (like index) -> out (like
/// base); imm: outer, N, inner, V.
void piper_scatter_add(void *const *args, const int64_t *imm);

/// x[outer,N] -> values[outer,k] indices[outer,k]; imm: outer, N, k, largest,
/// sorted. Equal values: lowest index first. NaN counts as the largest.
void piper_topk(void *const *args, const int64_t *imm);
/// x[outer,N] -> values, indices; imm: outer, N, descending. Stable.
void piper_sort(void *const *args, const int64_t *imm);
/// x[outer,N,inner] -> sums along N; imm: outer, N, inner.
void piper_cumsum(void *const *args, const int64_t *imm);

/// state[2] i64 (seed, counter) -> out[n] in [0, 1); imm: n, stream.
void piper_random_uniform(void *const *args, const int64_t *imm);
}

namespace piper::runtime {

struct KernelSymbol {
  const char *name;
  const void *address;
};

/// All functions above, under the names that objects refer to.
const std::vector<KernelSymbol> &kernelSymbols();

} // namespace piper::runtime

#endif // PIPER_RUNTIME_CPU_KERNELS_KERNELS_H
