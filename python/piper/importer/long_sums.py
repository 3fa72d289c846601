# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums over many elements are made in float64, and rounded once.

One number that takes in a million others loses digits to each of them; torch adds in float32, but in a tree of partial sums. A wider accumulator is more
accurate than that, keeps the order of the loop that the sum shares with others, and what is read stays float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import fx

from .graphs import aten, calls

_CONVERT = torch.ops.prims.convert_element_type.default
_SUMS = {aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim}
#: Numbers from which on a sum is long. Of neighbours in memory a vector of the processor holds 16 partial sums, so that errors grow slowly; of rows, whose
#: sums stand in memory, a wider accumulator costs as much as the sum itself, which is less than a hundredth of a layer only where rows are many; sums over
#: images and channels (batch norm) are small beside their terms, and all of a tensor is added but once.
_NEIGHBOURS, _ROWS, _MANY_DIMS = 65536, 4096, 256


def make_long_sums_wide(graph: fx.Graph) -> None:
    """Rewrites the long float32 sums and means of a decomposed graph."""
    for node in calls(graph):
        if node.target is aten.var_mean.correction:
            _part_mean_from_variance(graph, node)
        elif node.target is aten.linalg_vector_norm.default:
            _take_norm_apart(graph, node)
    for node in calls(graph):
        if node.target in _SUMS and _is_float32(node) and _is_float32(node.args[0]) and _is_long(node):
            _widen(graph, node)


def _is_float32(node: fx.Node) -> bool:
    return node.meta["val"].dtype == torch.float32


def _is_long(node: fx.Node) -> bool:
    shape = node.args[0].meta["val"].shape
    dims = _dims(node, len(shape))
    count = math.prod(shape[dim] for dim in dims)
    if len(shape) - 1 not in dims:
        return count >= _ROWS
    return count >= (_NEIGHBOURS if len(dims) == 1 < len(shape) else _MANY_DIMS)


def _dims(node: fx.Node, rank: int) -> Sequence[int]:
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    return [dim % rank for dim in given] if given else range(rank)


def _widen(graph: fx.Graph, node: fx.Node) -> None:
    node.kwargs = {**node.kwargs, "dtype": torch.float64}
    narrow, node.meta = node.meta, {**node.meta, "val": node.meta["val"].double()}
    with graph.inserting_after(node):
        rounded = graph.call_function(_CONVERT, (node, torch.float32))
    rounded.meta = narrow
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)


def _take_norm_apart(graph: fx.Graph, node: fx.Node) -> None:
    """A Euclidean norm is the root of a sum."""
    x, order, dims, keepdim, dtype = (*node.args, *(2, None, False, None)[len(node.args) - 1 :])
    if order != 2 or dtype is not None or node.kwargs:
        return
    dims = [dims] if isinstance(dims, int) else list(dims or range(x.meta["val"].dim()))
    with graph.inserting_before(node):
        squares = graph.call_function(aten.mul.Tensor, (x, x))
        total = graph.call_function(aten.sum.dim_IntList, (squares, dims, keepdim))
        root = graph.call_function(aten.sqrt.default, (total,))
    squares.meta = {**node.meta, "val": x.meta["val"]}
    total.meta = root.meta = node.meta
    node.replace_all_uses_with(root)
    graph.erase_node(node)


def _part_mean_from_variance(graph: fx.Graph, node: fx.Node) -> None:
    """The variance torch-mlir makes in float64 by itself, the mean not."""
    x, dims = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    dims = list(dims) if dims else list(range(x.meta["val"].dim()))
    keepdim = bool(node.kwargs.get("keepdim", False))
    with graph.inserting_before(node):
        parts = (
            graph.call_function(aten.var.correction, (x, dims), {**node.kwargs, "keepdim": keepdim}),
            graph.call_function(aten.mean.dim, (x, dims, keepdim)),
        )
    for part, value in zip(parts, node.meta["val"], strict=True):
        part.meta = {**node.meta, "val": value}
    for item in list(node.users):
        item.replace_all_uses_with(parts[item.args[1]])
        graph.erase_node(item)
    graph.erase_node(node)
    for part in parts:
        if not part.users:
            graph.erase_node(part)
