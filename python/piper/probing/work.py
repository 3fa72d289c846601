# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much a forward computes, from the imported functions' shapes."""

from __future__ import annotations

import math

import torch

from ..importer.graphs import calls
from ..importer.imported import Imported


def per_row(imported: Imported) -> float:
    """Operations of a forward for each row: of products exactly, of all else about."""
    rows = max(imported.rows, key=lambda count: count or 0)
    costs: dict[str, float] = {}
    for node in imported.forward_nodes():
        if node.family not in costs:
            costs[node.family] = sum(map(_of_call, calls(imported.member(node, rows).graph)))
    return sum(costs[node.family] for node in imported.forward_nodes()) / (rows or 1)


def _of_call(node: torch.fx.Node) -> float:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0.0
    name = str(node.target)
    shapes = [tuple(arg.meta["val"].shape) for arg in node.args if _is_tensor(arg)]
    each = 4.0
    if "mm" in name and shapes:
        # Of (bias, a, b) or (a, b): the dimension that is summed over.
        each = 2.0 * shapes[-2][-1] if len(shapes) > 1 else each
    elif "convolution" in name and len(shapes) > 1:
        each = 2.0 * math.prod(shapes[1][1:])
    elif "attention" in name and shapes:
        each = 4.0 * shapes[0][-2]
    return each * value.numel()


def _is_tensor(arg: object) -> bool:
    return isinstance(arg, torch.fx.Node) and isinstance(arg.meta.get("val"), torch.Tensor)
