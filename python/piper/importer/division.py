# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides each chunk's backward in two: I computes what earlier chunks wait for, W the rest, which is gradients of parameters.

The names are those of zero-bubble schedules (Qi et al. 2023, arXiv:2401.10241). Nothing is computed twice: I is the slice of the backward that ends in
values other chunks read, and what W needs of it is handed over.
"""

from __future__ import annotations

import operator

from torch import fx

from .cut import Key
from .graphs import aten, calls, reachable

#: Backwards that compute, as their last argument says, the gradients of input, weight and bias.
_MASKED = {aten.convolution_backward.default, aten.native_layer_norm_backward.default, aten.native_group_norm_backward.default,
           aten.native_batch_norm_backward.default}  # fmt: skip


def divide(graph: fx.Graph, keys: dict[fx.Node, Key]) -> None:
    """Replaces the keys ("B", chunk) by ("I", chunk) and ("W", chunk)."""
    _split_masked(graph, keys)
    backward = [node for node in calls(graph) if _is_backward(node, keys)]
    waited_for = [node for node in backward if any(user in keys and keys[user] != keys[node] for user in node.users)]

    def follow(node: fx.Node):
        # The parts of a tuple stay with it: a tuple can't pass between functions.
        parts = [user for user in node.users if user.target is operator.getitem]
        return [other for other in [*node.all_input_nodes, *parts] if keys.get(other) == keys[node]]

    needed = reachable(waited_for, follow)
    for node in backward:
        keys[node] = ("I" if node in needed else "W", keys[node][1])


def _is_backward(node: fx.Node, keys: dict[fx.Node, Key]) -> bool:
    return node in keys and keys[node][0] == "B"


def _split_masked(graph: fx.Graph, keys: dict[fx.Node, Key]) -> None:
    """One operation for the input's gradient and one for the parameters', so that only the first is waited for."""
    for node in calls(graph):
        if node.target not in _MASKED or not _is_backward(node, keys):
            continue
        mask = node.args[-1]
        parameters = [user for user in node.users if user.target is operator.getitem and user.args[1] > 0]
        if not mask[0] or not parameters:
            continue
        with graph.inserting_after(node):
            other = graph.call_function(node.target, (*node.args[:-1], [False, *mask[1:]]), node.kwargs)
        other.meta = {**node.meta, "val": (None, *node.meta["val"][1:])}
        keys[other] = keys[node]
        for user in parameters:
            user.replace_input_with(node, other)
        node.args = (*node.args[:-1], [True, *(False for _ in mask[1:])])
        node.meta["val"] = (node.meta["val"][0], *(None for _ in mask[1:]))
