# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Backward of grouped and of transposed convolutions as forward convolutions, for any number of spatial dimensions.

Of plain convolutions torch-mlir has a backward of its own; it takes no notice of groups.
"""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def convolution_backward(
    grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
):
    if groups == 1 and not transposed:
        return NotImplemented
    spatial = weight.dim() - 2
    stride, padding, dilation = (
        [*value] * spatial if len(value) == 1 else [*value] for value in (stride, padding, dilation)
    )
    options = (stride, padding, dilation, groups)
    to_input = to_weight = to_bias = None
    if mask[0] and transposed:
        # Rows that came of output padding belong to no input.
        kept = tuple(slice(extent) for extent in x.shape)
        to_input = _convolution(grad, weight, *options)[kept]
    elif mask[0]:
        to_input = input_gradient(grad, weight, x.shape[2:], *options)
    if mask[1]:
        # A transposed convolution is the input gradient of a plain one: what comes in and what goes out change places.
        to_weight = _weight_gradient(*((grad, x) if transposed else (x, grad)), weight.shape[2:], *options)
    if mask[2]:
        to_bias = grad.sum([0, *range(2, grad.dim())])
    return to_input, to_weight, to_bias


def _convolution(x: Tensor, weight: Tensor, stride, padding, dilation, groups) -> Tensor:
    none = [0] * len(stride)
    return aten.convolution.default(x, weight, None, stride, padding, dilation, False, none, groups)


def input_gradient(grad: Tensor, weight: Tensor, extents, stride, padding, dilation, groups) -> Tensor:
    """The gradient [rows, outputs, …], spread by the stride, under the mirrored window → [rows, inputs, *extents]."""
    spatial = len(stride)
    for d in range(spatial):
        axis, reach = 2 + d, dilation[d] * (weight.shape[2 + d] - 1)
        grad = _spread(grad, axis, stride[d])
        before = reach - padding[d]
        grad = _pad(grad, axis, before, extents[d] + reach - before - grad.shape[axis])
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    mirrored = weight.flip([*range(2, weight.dim())]).reshape(groups, outputs, inputs, *weight.shape[2:])
    mirrored = mirrored.transpose(1, 2).reshape(groups * inputs, outputs, *weight.shape[2:])
    return _convolution(grad, mirrored, [1] * spatial, [0] * spatial, dilation, groups)


def _weight_gradient(x: Tensor, grad: Tensor, kernel, stride, padding, dilation, groups) -> Tensor:
    """The input under the gradient as window: strides and dilations change places, and so do rows and channels."""
    for d, extent in enumerate(kernel):
        reach = stride[d] * (grad.shape[2 + d] - 1) + dilation[d] * (extent - 1) + 1
        x = _pad(x, 2 + d, padding[d], reach - padding[d] - x.shape[2 + d])
    rows, image, window = x.shape[0], x.shape[2:], grad.shape[2:]
    x = x.reshape(rows, groups, -1, *image).permute(2, 1, 0, *range(3, 3 + len(image)))
    grad = grad.reshape(rows, groups, -1, *window).permute(1, 2, 0, *range(3, 3 + len(window)))
    x, grad = x.reshape(-1, groups * rows, *image), grad.reshape(-1, rows, *window)
    return _convolution(x, grad, dilation, [0] * len(kernel), stride, groups).transpose(0, 1)


def _spread(x: Tensor, axis: int, step: int) -> Tensor:
    """`step` - 1 zeros between neighbours along `axis`."""
    if step == 1:
        return x
    shape = list(x.shape)
    apart = _pad(x.unsqueeze(axis + 1), axis + 1, 0, step - 1)
    shape[axis] *= step
    return _pad(apart.reshape(shape), axis, 0, 1 - step)


def _pad(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Zeros before and after along `axis`; negative numbers cut off."""
    if before == after == 0:
        return x
    return aten.constant_pad_nd.default(x, [*[0, 0] * (x.dim() - 1 - axis), before, after], 0)
