# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small facts and edits on FX graphs of aten operations."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable

import torch
from torch import fx

aten = torch.ops.aten

#: Operations that are the identity on values.
ALIASES = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default, aten.lift_fresh.default}
#: Views that keep every element, so that the base takes no more room than the view.
FULL_VIEWS = {
    aten.t.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.transpose.int,
    aten.permute.default,
    aten.expand.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.movedim.intlist,
}
#: Views of a part.
PART_VIEWS = {aten.slice.Tensor, aten.select.int, aten.diagonal.default, operator.getitem}
#: Operations that give all parts of a tensor at once.
SPLITS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
#: Operations that make a tensor from numbers alone.
CREATIONS = {
    aten.full.default,
    aten.zeros.default,
    aten.ones.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.scalar_tensor.default,
    aten.eye.default,
    aten.empty.memory_format,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
}


def calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def is_view(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in FULL_VIEWS


def is_part_view(node: fx.Node) -> bool:
    """A slice or selection of a tensor (an item of a tuple is none)."""
    return node.op == "call_function" and node.target in PART_VIEWS and node.target is not operator.getitem


def is_split(node: fx.Node) -> bool:
    """A division of a tensor into parts, or one of its parts."""
    if node.op == "call_function" and node.target is operator.getitem:
        node = node.args[0]
    return node.op == "call_function" and node.target in SPLITS


def remove_aliases(graph: fx.Graph) -> None:
    for node in calls(graph):
        if node.target in ALIASES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()


def subgraph(nodes: Iterable[fx.Node], inputs: Iterable[fx.Node], outputs: Iterable[fx.Node]) -> fx.Graph:
    """A graph of copies of `nodes` with placeholders for `inputs`; `meta` is copied by reference.

    Between functions tensors are dense, whatever their strides were while they were traced, so a view may have to copy:
    it becomes a reshape.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for index, node in enumerate(inputs):
        copies[node] = graph.placeholder(f"arg{index}")
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
        copies[node].meta = dict(node.meta)
        if node.target in (aten.view.default, aten._unsafe_view.default):
            copies[node].target = aten.reshape.default
    graph.output(tuple(copies[node] for node in outputs))
    return graph


def structural_hash(graph: fx.Graph, *extra: object) -> str:
    """A hash of operations, arguments and placeholder types: equal in every process for equal graphs, whatever the
    nodes' names.
    """
    digest = hashlib.sha256(repr(extra).encode())
    number: dict[fx.Node, int] = {}

    def encode(value: object) -> str:
        if isinstance(value, fx.Node):
            return f"%{number[value]}"
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(map(encode, value)) + "]"
        return repr(value)

    for node in graph.nodes:
        number[node] = len(number)
        if node.op == "placeholder":
            value = node.meta["val"]
            digest.update(f"in {tuple(value.shape)} {value.dtype}\n".encode())
        else:
            options = sorted((key, encode(value)) for key, value in node.kwargs.items())
            digest.update(f"{node.target} {encode(node.args)} {options}\n".encode())
    return digest.hexdigest()[:16]


def reachable(roots: Iterable[fx.Node], follow: Callable[[fx.Node], Iterable[fx.Node]]) -> dict[fx.Node, None]:
    """The nodes reached from `roots` by `follow`, in the order of discovery."""
    found: dict[fx.Node, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack.extend(follow(node))
    return found
