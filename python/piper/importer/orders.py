# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that depend on an order along a dimension: running sums, products and extremes; sorting and what follows
from it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import library_ops
from .shapes import rows, three

aten = torch.ops.aten


def cumsum(x, dim, dtype=None):
    """Of integers by way of f32, exact up to 2**24."""
    wanted = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if x.dim() == 0 or wanted == torch.float64:
        return NotImplemented
    return library_ops.cumsum(three(x.to(torch.float32), dim % x.dim())).reshape(x.shape).to(wanted)


def _earlier(x: Tensor, step: int, fill: float) -> Tensor:
    """x [outer, N, inner] moved `step` places up along N."""
    return aten.constant_pad_nd.default(x[:, :-step], [0, 0, step, 0], fill)


def cumprod(x, dim, dtype=None):
    """Doubling the distance (Hillis and Steele 1986): the logarithm of N passes, and right for zeros and signs."""
    if x.dim() == 0 or not x.dtype.is_floating_point:
        return NotImplemented
    found, step = three(x.to(dtype or x.dtype), dim % x.dim()), 1
    while step < found.shape[1]:
        found, step = found * _earlier(found, step, 1), 2 * step
    return found.reshape(x.shape)


def _running_extreme(x, dim, lowest: float, is_beyond):
    if x.dim() == 0 or not x.dtype.is_floating_point:
        return NotImplemented
    found, step = three(x, dim % x.dim()), 1
    places = torch.arange(found.shape[1])[None, :, None].expand(found.shape)
    while step < found.shape[1]:
        # Of equal values torch names the last place.
        earlier = _earlier(found, step, lowest)
        taken = is_beyond(earlier, found)
        places = torch.where(taken, _earlier(places, step, 0), places)
        found, step = torch.where(taken, earlier, found), 2 * step
    return found.reshape(x.shape), places.reshape(x.shape)


def cummax(x, dim):
    return _running_extreme(x, dim, float("-inf"), torch.gt)


def cummin(x, dim):
    return _running_extreme(x, dim, float("inf"), torch.lt)


def topk(x, k, dim=-1, largest=True, sorted=True):
    if x.dtype != torch.float32 or x.dim() == 0:
        return NotImplemented
    moved, flat = rows(x, dim)
    found = library_ops.topk(flat, k, largest, sorted)
    return tuple(part.reshape([*moved.shape[:-1], k]).movedim(-1, dim) for part in found)


def sort(x, dim=-1, descending=False):
    if x.dtype != torch.float32 or x.dim() == 0:
        return NotImplemented
    moved, flat = rows(x, dim)
    return tuple(part.reshape(moved.shape).movedim(-1, dim) for part in library_ops.sort(flat, descending))


def sort_stable(x, stable=None, dim=-1, descending=False):
    return sort(x, dim, descending)


def kthvalue(x, k, dim=-1, keepdim=False):
    found = sort(x, dim)
    if found is NotImplemented:
        return NotImplemented
    chosen = tuple(part.select(dim, k - 1) for part in found)
    return tuple(part.unsqueeze(dim) for part in chosen) if keepdim else chosen


def median(x, dim=-1, keepdim=False):
    """The lower one of two."""
    return NotImplemented if x.dim() == 0 else kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def median_of_all(x):
    found = median(x.reshape(-1))
    return NotImplemented if found is NotImplemented else found[0]


OWN = {
    aten.cumsum.default: cumsum,
    aten.cumprod.default: cumprod,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
    aten.topk.default: topk,
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.kthvalue.default: kthvalue,
    aten.median.dim: median,
    aten.median.default: median_of_all,
}
