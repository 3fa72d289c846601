# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How operations that have no good lowering are expressed by others. Every form costs time and memory linear in its
operands and results.

PyTorch's own core decompositions come first; the ones here replace those that would materialise a one-hot matrix or end
in operations unknown to MLIR. A decomposition that does not cover a call returns NotImplemented, and the operation is
then reported.
"""

from __future__ import annotations

import math

import torch

from . import cross_entropy, indexing, library_ops, orders, pooling
from .convolutions import convolution_backward

aten = torch.ops.aten


def copy(destination, source, non_blocking=False):
    return source.to(destination.dtype).expand(destination.shape)


def full_like(x, value, *, dtype=None, layout=None, device=None, pin_memory=False, memory_format=None):
    return torch.full(x.shape, value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x, *, dtype=None, layout=None, device=None, pin_memory=False, memory_format=None):
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x, *, dtype=None, layout=None, device=None, pin_memory=False, memory_format=None):
    return full_like(x, 1, dtype=dtype, device=device)


def new_full(x, size, value, *, dtype=None, layout=None, device=None, pin_memory=False):
    return torch.full(size, value, dtype=dtype or x.dtype, device=device or x.device)


def new_zeros(x, size, **options):
    return new_full(x, size, 0, **options)


def new_ones(x, size, **options):
    return new_full(x, size, 1, **options)


def new_empty_strided(x, size, stride, **options):
    """Strides have no meaning between dense tensors; nothing reads what is empty."""
    return new_full(x, size, 0, **options)


def squeeze_dims(x, dims):
    gone = {dim % x.dim() for dim in dims if x.shape[dim] == 1}
    return x.reshape([size for dim, size in enumerate(x.shape) if dim not in gone])


def gelu(x, approximate="none"):
    """As PyTorch defines it; torch-mlir has sqrt(2 / pi) to three digits."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def embedding_dense_backward(grad, index, num_weights, padding_idx, scale_grad_by_freq):
    rows, index = grad.reshape(index.numel(), grad.shape[-1]), index.reshape(-1).to(torch.int64)
    if scale_grad_by_freq:
        ones = torch.ones(index.shape[0], 1)
        rows = rows / library_ops.index_put_accumulate(torch.zeros(num_weights, 1), index, ones)[index]
    if grad.dtype == torch.float64:
        # The library's own is of float32.
        chosen = (torch.arange(num_weights)[:, None] == index) & (index != padding_idx)
        return chosen.to(torch.float64) @ rows
    return library_ops.embedding_backward(rows, index, num_weights, padding_idx)


def weight_norm_backward(grad, v, g, norms, dim):
    """Salimans and Kingma 2016, equation 3."""
    others = [d for d in range(v.dim()) if d != dim]
    to_g = (grad * v).sum(others, keepdim=True) / norms
    return g / norms * (grad - v * to_g / norms), to_g


def constant_pad_nd(x, pad, value=0):
    """Of negative numbers, which torch-mlir takes for offsets: what they cut off goes first."""
    if all(size >= 0 for size in pad):
        return NotImplemented
    for position, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.dim() - 1 - position
        first = max(-before, 0)
        x = x.narrow(axis, first, x.shape[axis] - first - max(-after, 0))
    return aten.constant_pad_nd.default(x, [max(size, 0) for size in pad], value)


def fmod(x, divisor):
    return aten.fmod.Tensor(x, torch.full([], divisor, dtype=x.dtype))


def erfc(x):
    """With a relative error below 1.2e-7: Press et al., Numerical Recipes, section 6.2."""
    t = 1 / (1 + 0.5 * x.abs())
    terms = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196)
    series = torch.zeros_like(x)
    for term in (*terms, 1.00002368):
        series = series * t + term
    tail = t * torch.exp(-x * x - 1.26551223 + t * series)
    return torch.where(x >= 0, tail, 2 - tail)


OWN = {
    **indexing.OWN,
    **orders.OWN,
    **pooling.OWN,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
    aten.constant_pad_nd.default: constant_pad_nd,
    aten.fmod.Scalar: fmod,
    aten.erfc.default: erfc,
    aten.gelu.default: gelu,
    aten.squeeze.dims: squeeze_dims,
    aten.convolution_backward.default: convolution_backward,
    aten.copy.default: copy,
    aten.full_like.default: full_like,
    aten.zeros_like.default: zeros_like,
    aten.ones_like.default: ones_like,
    aten.new_full.default: new_full,
    aten.new_zeros.default: new_zeros,
    aten.new_ones.default: new_ones,
    aten.new_empty_strided.default: new_empty_strided,
    aten.embedding_dense_backward.default: embedding_dense_backward,
    **cross_entropy.DECOMPOSITIONS,
    aten.nll_loss_forward.default: cross_entropy.nll_loss_forward,
    aten.nll_loss_backward.default: cross_entropy.nll_loss_backward,
    aten.nll_loss2d_forward.default: cross_entropy.nll_loss_forward,
    aten.nll_loss2d_backward.default: cross_entropy.nll_loss_backward,
}
#: PyTorch's decompositions beyond the core set that lead to operations with a lowering.
EXTRA = [
    aten.native_group_norm, aten.native_layer_norm, aten.addmm, aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit_no_training,
    aten._native_batch_norm_legit, aten._native_batch_norm_legit.no_stats, aten._adaptive_avg_pool2d, aten.logsumexp, aten._log_softmax,
    aten._to_copy, aten.diag, aten._softmax_backward_data, aten.silu_backward, aten._softmax, aten.select_backward, aten.slice_backward, aten.silu,
    aten._unsafe_view, aten.addmv,
]  # fmt: skip
#: Core decompositions that lead nowhere: to prims, which torch-mlir lacks, or to scatters. It has the operations
#: themselves.
KEPT = (
    "rsqrt",
    "squeeze",
    "roll",
    "one_hot",
    "empty_like",
    "eye",
    "aten.norm.",
    "linalg_",
    "aten.full.",
    "zeros",
    "ones",
)
