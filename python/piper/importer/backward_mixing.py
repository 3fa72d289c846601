# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds where code of the user that autograd runs lets the rows of a batch see each other: a hook that divides a gradient by its norm over the batch, say.

Two graphs of one step are compared, for some rows and for twice as many. A sum over the rows does not grow with them; a part of the batch may make one, as of a
parameter's gradient, as long as nothing but sums follows.
"""

from __future__ import annotations

import torch
from torch import fx

from .capture import Joint
from .graphs import calls
from .proportion import LINEAR, packet_of
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
    found = {}
    for node in nodes:
        if node.meta["origin"].by_user and BATCH_NORM not in str(node.target) and _couples(node, growth):
            found[node.meta["origin"].source or "unknown line"] = None
    return tuple(found)


def _growth(node: fx.Node, other: fx.Node) -> float:
    """How many times as many elements there are for twice the rows."""
    sizes = [
        sum(part.numel() for part in value if isinstance(part, torch.Tensor)) if isinstance(value, (tuple, list)) else getattr(value, "numel", int)()
        for value in (node.meta.get("val"), other.meta.get("val"))
    ]  # fmt: skip
    return sizes[1] / sizes[0] if sizes[0] else 1.0


def _couples(node: fx.Node, growth: dict[fx.Node, float]) -> bool:
    if all(growth.get(operand, 1.0) == 1.0 for operand in node.all_input_nodes):
        return False
    if growth[node] != 1.0:
        return growth[node] != 2.0
    return packet_of(node) not in LINEAR or _meets_rows(node, growth)


def _meets_rows(total: fx.Node, growth: dict[fx.Node, float]) -> bool:
    """Whether more than sums is made of a sum over the rows: something for each row, or what is not linear."""
    seen, stack = {total}, [total]
    while stack:
        for user in stack.pop().users:
            if user.op != "call_function" or user in seen:
                continue
            if growth[user] != 1.0 or user.meta["origin"].by_user and not _is_linear(user, seen):
                return True
            seen.add(user)
            stack.append(user)
    return False


def _is_linear(node: fx.Node, sums: set[fx.Node]) -> bool:
    packet = packet_of(node)
    if packet is torch.ops.aten.div and node.args[1] in sums:
        return False
    product = packet in (torch.ops.aten.mul, torch.ops.aten.mm, torch.ops.aten.bmm)
    return packet in LINEAR and not (product and all(operand in sums for operand in node.args[:2]))
