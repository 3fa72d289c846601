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
from torch import Tensor

from . import library_ops

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
    if scale_grad_by_freq:
        return NotImplemented
    rows = grad.reshape(index.numel(), grad.shape[-1])
    return library_ops.embedding_backward(rows, index.reshape(-1).to(torch.int64), num_weights, padding_idx)


def _channels(x: Tensor) -> int:
    return 0 if x.dim() < 2 else 1


def _per_class(weight: Tensor, x: Tensor, dim: int) -> Tensor:
    return weight.reshape([-1 if d == dim else 1 for d in range(x.dim())])


def nll_loss_forward(x, target, weight, reduction, ignore_index):
    dim = _channels(x)
    valid = target != ignore_index
    safe = torch.where(valid, target, 0)
    picked = -torch.gather(x, dim, safe.unsqueeze(dim)).squeeze(dim)
    if weight is not None:
        weights = torch.where(valid, weight[safe], 0.0)
        losses, total = picked * weights, weights.sum()
    else:
        losses, total = picked, valid.sum().to(x.dtype)
    losses = torch.where(valid, losses, 0.0)
    if reduction == 0:
        return losses, x.new_zeros(())
    return (losses.sum() if reduction == 2 else losses.sum() / total), total


def nll_loss_backward(grad, x, target, weight, reduction, ignore_index, total_weight):
    dim = _channels(x)
    each = -grad / total_weight if reduction == 1 else -grad
    valid = (target != ignore_index).unsqueeze(dim)
    each = each.unsqueeze(dim) if each.dim() else each
    if weight is not None:
        each = each * _per_class(weight, x, dim)
    classes = _per_class(torch.arange(x.shape[dim], dtype=target.dtype, device=x.device), x, dim)
    return torch.where((classes == target.unsqueeze(dim)) & valid, each, 0.0).to(x.dtype)


def _three(x: Tensor, dim: int) -> Tensor:
    return x.reshape(math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))


def scatter_add(x, dim, index, src):
    dim = dim % x.dim() if x.dim() else 0
    if (
        x.dtype != torch.float32
        or x.dim() == 0
        or any(index.shape[d] != x.shape[d] for d in range(x.dim()) if d != dim)
    ):
        return NotImplemented
    src = src[tuple(slice(size) for size in index.shape)]
    return library_ops.scatter_add(_three(x, dim), _three(index, dim), _three(src, dim)).reshape(x.shape)


def scatter_src(x, dim, index, src):
    """Where an index occurs twice torch picks one of the values, any; here it is their mean, so equal ones stay."""
    if x.dtype not in (torch.float32, torch.bool) or x.dim() == 0:
        return NotImplemented
    zeros, ones = torch.zeros(x.shape, device=x.device), torch.ones(index.shape, device=x.device)
    values = scatter_add(zeros, dim, index, src.to(torch.float32))
    hits = scatter_add(zeros, dim, index, ones)
    if values is NotImplemented or hits is NotImplemented:
        return NotImplemented
    return torch.where(hits > 0, values / hits if x.dtype == torch.float32 else values > 0, x)


def scatter_value(x, dim, index, value):
    return scatter_src(x, dim, index, torch.full(index.shape, value, dtype=x.dtype, device=x.device))


def index_put(x, indices, values, accumulate=False):
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.bool:
        return _masked_put(x, indices[0], values, accumulate)
    dims = [d for d, index in enumerate(indices) if index is not None]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    if (
        x.dtype != torch.float32
        or not adjacent
        or any(indices[d].dtype not in (torch.int64, torch.int32) for d in dims)
    ):
        return NotImplemented
    found = torch.broadcast_tensors(*(indices[d].to(torch.int64) for d in dims))
    sizes = [x.shape[d] for d in dims]
    flat = torch.zeros_like(found[0])
    for index, size in zip(found, sizes, strict=True):
        flat = flat * size + torch.where(index < 0, index + size, index)
    # The indexed dimensions to the front: rows named by `flat`.
    order = [*dims, *(d for d in range(x.dim()) if d not in dims)]
    moved = x.permute(order)
    rest = list(moved.shape[len(dims) :])
    before, named = dims[0], found[0].dim()
    shape = [*x.shape[:before], *found[0].shape, *x.shape[before + len(dims) :]]
    rows = values.expand(shape).permute(
        [*range(before, before + named), *range(before), *range(before + named, len(shape))]
    )
    base, width = moved.reshape(math.prod(sizes), -1), math.prod(rest)
    rows, flat = rows.reshape(flat.numel(), width), flat.reshape(-1)
    result = _put_rows(base, flat, rows, accumulate).reshape(moved.shape)
    return result.permute([order.index(d) for d in range(x.dim())])


def _put_rows(base: Tensor, index: Tensor, rows: Tensor, accumulate: bool) -> Tensor:
    if accumulate:
        return library_ops.index_put_accumulate(base, index, rows)
    hits = library_ops.index_put_accumulate(torch.zeros(base.shape[0], 1), index, torch.ones(index.shape[0], 1))
    values = library_ops.index_put_accumulate(torch.zeros(base.shape), index, rows)
    return torch.where(hits > 0, values / hits, base)


def _masked_put(x: Tensor, mask: Tensor, values: Tensor, accumulate: bool):
    if values.numel() != 1 or list(mask.shape) != list(x.shape[: mask.dim()]):
        return NotImplemented
    mask = mask.reshape([*mask.shape, *[1] * (x.dim() - mask.dim())])
    value = values.reshape(()).to(x.dtype)
    return torch.where(mask, x + value if accumulate else value, x)


def index_add(x, dim, index, src, alpha=1):
    if x.dtype != torch.float32 or x.dim() == 0:
        return NotImplemented
    moved, rows = x.movedim(dim, 0), (src * alpha if alpha != 1 else src).movedim(dim, 0)
    base = moved.reshape(moved.shape[0], -1)
    result = library_ops.index_put_accumulate(base, index.reshape(-1).to(torch.int64), rows.reshape(-1, base.shape[1]))
    return result.reshape(moved.shape).movedim(0, dim)


def cumsum(x, dim, dtype=None):
    """Of integers by way of f32, exact up to 2**24."""
    wanted = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if x.dim() == 0 or wanted == torch.float64:
        return NotImplemented
    return library_ops.cumsum(_three(x.to(torch.float32), dim % x.dim())).reshape(x.shape).to(wanted)


def _rows(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    moved = x.movedim(dim, -1)
    return moved, moved.reshape(-1, moved.shape[-1])


def topk(x, k, dim=-1, largest=True, sorted=True):
    if x.dtype != torch.float32 or x.dim() == 0:
        return NotImplemented
    moved, rows = _rows(x, dim)
    found = library_ops.topk(rows, k, largest, sorted)
    return tuple(part.reshape([*moved.shape[:-1], k]).movedim(-1, dim) for part in found)


def sort(x, dim=-1, descending=False):
    if x.dtype != torch.float32 or x.dim() == 0:
        return NotImplemented
    moved, rows = _rows(x, dim)
    return tuple(part.reshape(moved.shape).movedim(-1, dim) for part in library_ops.sort(rows, descending))


def sort_stable(x, stable=None, dim=-1, descending=False):
    return sort(x, dim, descending)


def max_pool2d_with_indices_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, indices):
    planes = math.prod(x.shape[:-2])
    zeros = torch.zeros(planes, x.shape[-2] * x.shape[-1], 1, device=x.device)
    return library_ops.scatter_add(zeros, indices.reshape(planes, -1, 1), grad.reshape(planes, -1, 1)).reshape(x.shape)


def avg_pool2d_backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Of windows that do not overlap: each element's share of its window's gradient."""
    height, width = kernel if len(kernel) == 2 else kernel * 2
    if (stride and list(stride) != list(kernel)) or any(padding) or ceil_mode:
        return NotImplemented
    rows, columns = grad.shape[-2:]
    share = grad[..., :, None, :, None] / (divisor_override or height * width)
    share = share.expand([*grad.shape[:-2], rows, height, columns, width])
    share = share.reshape([*grad.shape[:-2], rows * height, columns * width])
    return aten.constant_pad_nd(share, [0, x.shape[-1] - columns * width, 0, x.shape[-2] - rows * height], 0)


OWN = {
    aten.gelu.default: gelu,
    aten.avg_pool2d_backward.default: avg_pool2d_backward,
    aten.squeeze.dims: squeeze_dims,
    aten.copy.default: copy,
    aten.full_like.default: full_like,
    aten.zeros_like.default: zeros_like,
    aten.ones_like.default: ones_like,
    aten.new_full.default: new_full,
    aten.new_zeros.default: new_zeros,
    aten.new_ones.default: new_ones,
    aten.new_empty_strided.default: new_empty_strided,
    aten.embedding_dense_backward.default: embedding_dense_backward,
    aten.nll_loss_forward.default: nll_loss_forward,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_forward.default: nll_loss_forward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten.scatter_add.default: scatter_add,
    aten.scatter.src: scatter_src,
    aten.scatter.value: scatter_value,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.index_add.default: index_add,
    aten.cumsum.default: cumsum,
    aten.topk.default: topk,
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.max_pool2d_with_indices_backward.default: max_pool2d_with_indices_backward,
}
#: PyTorch's decompositions beyond the core set that lead to operations with a lowering.
EXTRA = [
    aten.native_group_norm, aten.native_layer_norm, aten.addmm, aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit_no_training,
    aten._native_batch_norm_legit, aten._native_batch_norm_legit.no_stats, aten._adaptive_avg_pool2d, aten.logsumexp, aten._log_softmax,
    aten._to_copy, aten.diag, aten._softmax_backward_data, aten.silu_backward, aten._softmax, aten.select_backward, aten.slice_backward, aten.silu,
    aten._unsafe_view,
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
