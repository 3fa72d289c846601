# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds where code of the user that autograd runs lets the rows of a batch see each other: a hook that divides a gradient by its norm over the batch, say.

Two graphs of one step are compared, for some rows and for twice as many. A sum over the rows does not grow with them; a part of the batch may make one, as of a
parameter's gradient, as long as nothing but sums follows.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch import fx

from .capture import Joint
from .graphs import aten, calls
from .proportion import LINEAR, OF_SHAPES, packet_of
from .row_mixing import BATCH_NORM


def has_user_code(joint: Joint) -> bool:
    """Whether autograd ran code of the user."""
    return any(node.meta["origin"].by_user for node in calls(joint.module.graph))


def backward_mixing(one: Joint, two: Joint) -> tuple[str, ...]:
    """The lines of that code that mix rows; `two` has twice the rows of `one`. None where the graphs don't correspond."""
    nodes, others = calls(one.module.graph), calls(two.module.graph)
    if [node.target for node in nodes] != [node.target for node in others]:
        return ()
    growth = {node: _growth(node, other) for node, other in zip(nodes, others, strict=True)}
    for placeholder, other in zip(one.placeholders, two.placeholders, strict=True):
        growth[placeholder] = _growth(placeholder, other)
    found: dict[str, None] = {}
    # Sums over the rows that the backward makes, with the line of user code that made one of them, "" if none did.
    sums: dict[fx.Node, str] = {}
    for node in nodes:
        origin = node.meta["origin"]
        if not origin.backward or BATCH_NORM in str(node.target) or packet_of(node) in OF_SHAPES:
            continue
        line = origin.source if origin.by_user else ""
        made_of = [sums[operand] for operand in node.all_input_nodes if operand in sums]
        grows = any(growth.get(operand, 1.0) != 1.0 for operand in node.all_input_nodes)
        if growth[node] == 1.0 and (grows or made_of):
            sums[node] = line or next(filter(None, made_of), "")
            if line and not _is_linear(node, sums):
                found[line] = None
        elif made_of and growth[node] != 1.0 and (line or any(made_of)):
            found[line or next(filter(None, made_of))] = None
        elif line and grows and growth[node] != 2.0:
            found[line] = None
    return tuple(found)


def _growth(node: fx.Node, other: fx.Node) -> float:
    """How many times as many elements there are for twice the rows."""
    before, after = _elements(node), _elements(other)
    return after / before if before else 1.0


def _elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return sum(part.numel() for part in parts if isinstance(part, torch.Tensor))


def _is_linear(node: fx.Node, sums: Mapping[fx.Node, str]) -> bool:
    """Whether a sum over parts of a batch may be made after it as well as before."""
    packet = packet_of(node)
    if packet is aten.div:
        return node.args[1] not in sums
    if packet in (aten.where, aten.masked_fill):
        return node.args[0 if packet is aten.where else 1] not in sums
    if packet in (aten.mul, aten.mm, aten.bmm):
        return not all(operand in sums for operand in node.args[:2])
    if packet in (aten.add, aten.sub):
        # What is added to each part's sum would be added once per part.
        return all(operand in sums for operand in node.args[:2])
    return packet in LINEAR or packet is operator.getitem
