# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading and writing by positions: strides, scatters and indices that are tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import library_ops
from .shapes import three

aten = torch.ops.aten


def as_strided(x, size, stride, storage_offset=None):
    """Of a dense tensor: a reshape where the strides are dense too, otherwise its elements by their positions."""
    if not x.is_contiguous():
        return NotImplemented
    dense = [math.prod(size[d + 1 :]) for d in range(len(size))]
    offset = storage_offset or 0
    is_dense = all(n == 1 or s == d for n, s, d in zip(size, stride, dense, strict=True))
    if is_dense and offset == 0 and math.prod(size) == x.numel():
        return x.reshape(size)
    return x.reshape(-1)[_strided_positions(size, stride, offset)]


def _strided_positions(size, stride, offset) -> Tensor:
    positions = torch.full([1] * len(size), offset, dtype=torch.int64)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [-1 if d == dim else 1 for d in range(len(size))]
        positions = positions + (torch.arange(extent) * step).reshape(shape)
    return positions


def scatter_add(x, dim, index, src):
    dim = dim % x.dim() if x.dim() else 0
    if (
        x.dtype != torch.float32
        or x.dim() == 0
        or any(index.shape[d] != x.shape[d] for d in range(x.dim()) if d != dim)
    ):
        return NotImplemented
    src = src[tuple(slice(size) for size in index.shape)]
    return library_ops.scatter_add(three(x, dim), three(index, dim), three(src, dim)).reshape(x.shape)


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


def as_strided_scatter(x, src, size, stride, storage_offset=None):
    if not x.is_contiguous():
        return NotImplemented
    positions = _strided_positions(size, stride, storage_offset or 0)
    return index_put(x.reshape(-1), [positions.reshape(-1)], src.reshape(-1)).reshape(x.shape)


def diagonal_scatter(x, src, offset=0, dim1=0, dim2=1):
    """Element `i` of `src` goes to row `i`, column `i + offset`; above the diagonal rows count, below it columns."""
    dim1, dim2 = dim1 % x.dim(), dim2 % x.dim()
    rows = torch.arange(x.shape[dim1]).reshape([-1 if d == dim1 else 1 for d in range(x.dim())])
    columns = torch.arange(x.shape[dim2]).reshape([-1 if d == dim2 else 1 for d in range(x.dim())])
    along, across = (dim1, dim2) if offset >= 0 else (dim2, dim1)
    missing = x.shape[along] - src.shape[-1]
    values = aten.constant_pad_nd.default(src, [0, missing], 0) if missing else src
    values = values.movedim(-1, along - (across < along)).unsqueeze(across)
    return torch.where(columns == rows + offset, values, x)


def scatter_reduce(x, dim, index, src, reduce, include_self=True):
    if reduce not in ("sum", "mean"):
        return NotImplemented
    ones = torch.ones(src.shape)
    hits = scatter_add(torch.zeros(x.shape), dim, index, ones)
    total = scatter_add(x if include_self else torch.zeros(x.shape), dim, index, src)
    if hits is NotImplemented or total is NotImplemented:
        return NotImplemented
    if reduce == "mean":
        total = total / torch.clamp(hits + 1 if include_self else hits, min=1)
    return total if include_self else torch.where(hits > 0, total, x)


OWN = {
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.scatter_reduce.two: scatter_reduce,
    aten.as_strided.default: as_strided,
    aten.scatter_add.default: scatter_add,
    aten.scatter.src: scatter_src,
    aten.scatter.value: scatter_value,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.index_add.default: index_add,
}
