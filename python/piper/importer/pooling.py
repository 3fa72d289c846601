# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling of one, two and three dimensions, where torch-mlir has no form of it: mostly backward."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import library_ops
from .convolutions import input_gradient

aten = torch.ops.aten


def _each(value, spatial: int) -> list[int]:
    return list(value) * spatial if len(value) == 1 else list(value)


def _scatter_to(grad: Tensor, x: Tensor, indices: Tensor, spatial: int) -> Tensor:
    """Each gradient to the element of its plane that was the largest."""
    planes = math.prod(x.shape[:-spatial])
    size = math.prod(x.shape[-spatial:])
    places, values = indices.reshape(planes, -1, 1), grad.reshape(planes, -1, 1)
    if x.dtype == torch.float64:
        # The library's own is of float32.
        return torch.where(places == torch.arange(size), values, 0.0).sum(1).reshape(x.shape)
    zeros = torch.zeros(planes, size, 1, device=x.device)
    return library_ops.scatter_add(zeros, places, values).reshape(x.shape)


def max_pool2d_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, indices):
    return _scatter_to(grad, x, indices, 2)


def max_pool3d_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, indices):
    return _scatter_to(grad, x, indices, 3)


def adaptive_max_pool2d_backward(grad, x, indices):
    return _scatter_to(grad, x, indices, 2)


def adaptive_max_pool3d_backward(grad, x, indices):
    return _scatter_to(grad, x, indices, 3)


def _average(spatial: int):
    def forward(x, kernel, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):
        padding = _each(padding, spatial)
        if not (ceil_mode or divisor_override or (any(padding) and not count_include_pad)):
            return NotImplemented
        kernel = _each(kernel, spatial)
        stride, extents = _each(stride or kernel, spatial), list(x.shape[-spatial:])
        counts = [_outputs(*each, ceil_mode) for each in zip(extents, kernel, stride, padding, strict=True)]
        pads: list[int] = []
        for extent, width, step, before, count in zip(extents, kernel, stride, padding, counts, strict=True):
            pads = [before, (count - 1) * step + width - before - extent, *pads]
        planes = aten.constant_pad_nd.default(x.reshape(-1, 1, *extents), pads, 0)
        ones, none = torch.ones([1, 1, *kernel], dtype=x.dtype), [0] * spatial
        total = aten.convolution.default(planes, ones, None, stride, none, [1] * spatial, False, none, 1)
        total = total.reshape([*x.shape[:-spatial], *counts])
        sizes = divisor_override or _window_sizes(total, extents, kernel, stride, padding, count_include_pad)
        return total / sizes

    return forward


def _outputs(extent: int, width: int, step: int, padding: int, ceil_mode: bool) -> int:
    """Windows along one dimension; none begins behind the input and its padding before."""
    room = extent + 2 * padding - width
    count = (room + (step - 1 if ceil_mode else 0)) // step + 1
    return count - (ceil_mode and (count - 1) * step >= extent + padding)


def _average_backward(spatial: int):
    def backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
        kernel = _each(kernel, spatial)
        stride, padding = _each(stride or kernel, spatial), _each(padding, spatial)
        extents = list(x.shape[-spatial:])
        if divisor_override or not (any(padding) or ceil_mode):
            share = grad / (divisor_override or math.prod(kernel))
        else:
            share = grad / _window_sizes(grad, extents, kernel, stride, padding, count_include_pad)
        ones = torch.ones([1, 1, *kernel], dtype=grad.dtype)
        planes = share.reshape(-1, 1, *share.shape[-spatial:])
        return input_gradient(planes, ones, extents, stride, padding, [1] * spatial, 1).reshape(x.shape)

    return backward


def _window_sizes(grad: Tensor, extents, kernel, stride, padding, count_include_pad: bool) -> Tensor:
    """How many elements each window averages over: those of its padding count or not, those beyond it never do."""
    spatial = len(extents)
    sizes = torch.ones([1] * spatial)
    for d in range(spatial):
        first = torch.arange(grad.shape[d - spatial]) * stride[d] - padding[d]
        last = torch.clamp(first + kernel[d], max=extents[d] + padding[d])
        if not count_include_pad:
            first, last = torch.clamp(first, min=0), torch.clamp(last, max=extents[d])
        sizes = sizes * (last - first).reshape([-1 if i == d else 1 for i in range(spatial)])
    return sizes


def _shares(extent: int, outputs: int) -> Tensor:
    """[outputs, extent]: what each element has in each adaptive window."""
    windows, elements = torch.arange(outputs)[:, None], torch.arange(extent)[None]
    inside = (elements >= windows * extent // outputs) & (elements < ((windows + 1) * extent + outputs - 1) // outputs)
    inside = inside.to(torch.float32)
    return inside / inside.sum(1, keepdim=True)


def adaptive_average(x, sizes):
    for d, size in enumerate(sizes):
        axis = x.dim() - len(sizes) + d
        x = torch.matmul(x.movedim(axis, -1), _shares(x.shape[axis], size).t()).movedim(-1, axis)
    return x


def _adaptive_average_backward(grad, x, spatial):
    for axis in range(x.dim() - spatial, x.dim()):
        grad = torch.matmul(grad.movedim(axis, -1), _shares(x.shape[axis], grad.shape[axis])).movedim(-1, axis)
    return grad


OWN = {
    aten.avg_pool2d.default: _average(2),
    aten.avg_pool3d.default: _average(3),
    aten.max_pool2d_with_indices_backward.default: max_pool2d_backward,
    aten.max_pool3d_with_indices_backward.default: max_pool3d_backward,
    aten.adaptive_max_pool2d_backward.default: adaptive_max_pool2d_backward,
    aten.adaptive_max_pool3d_backward.default: adaptive_max_pool3d_backward,
    aten.avg_pool2d_backward.default: _average_backward(2),
    aten.avg_pool3d_backward.default: _average_backward(3),
    aten._adaptive_avg_pool2d_backward.default: lambda grad, x: _adaptive_average_backward(grad, x, 2),
    aten._adaptive_avg_pool3d_backward.default: lambda grad, x: _adaptive_average_backward(grad, x, 3),
    aten._adaptive_avg_pool3d.default: adaptive_average,
}
