# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of functions as plain data, to hand them to another process."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .imported import TensorSpec


@dataclass(frozen=True)
class NodeRef:
    index: int


@dataclass(frozen=True)
class Step:
    """One operation: `target` is "getitem" or "namespace.name.overload"; `source` the user's line and torch's module."""

    target: str
    args: Any
    kwargs: Any
    source: str


@dataclass(frozen=True)
class FlatGraph:
    """A function: its inputs, its operations in order (numbered after the inputs) and its results."""

    name: str
    inputs: tuple[TensorSpec, ...]
    steps: tuple[Step, ...]
    results: tuple[Any, ...]


def flatten(name: str, graph: fx.Graph) -> FlatGraph:
    """`graph` as data. Its placeholders have `meta["val"]`; a source is taken from `meta["source"]` or the origin."""
    number: dict[fx.Node, NodeRef] = {}
    inputs, steps, results = [], [], ()
    for node in graph.nodes:
        if node.op == "output":
            results = fx.map_arg(node.args[0], number.__getitem__)
            continue
        number[node] = NodeRef(len(number))
        if node.op == "placeholder":
            value = node.meta["val"]
            inputs.append(TensorSpec(tuple(value.shape), value.dtype))
            continue
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), number.__getitem__)
        steps.append(Step(_name(node.target), _plain(args), _plain(kwargs), _source(node)))
    return FlatGraph(name, tuple(inputs), tuple(steps), tuple(results))


def _source(node: fx.Node) -> str:
    origin = node.meta.get("origin")
    return origin.place if origin is not None else node.meta.get("source", "")


def _name(target: Any) -> str:
    if target is operator.getitem:
        return "getitem"
    schema = target._schema
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def _plain(value: Any) -> Any:
    """FX's immutable containers as ordinary ones, which any process can unpickle."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def unflatten(flat: FlatGraph) -> fx.Graph:
    """The graph again; operations have `meta["source"]`, placeholders `meta["spec"]`."""
    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for index, spec in enumerate(flat.inputs):
        nodes.append(graph.placeholder(f"arg{index}"))
        nodes[-1].meta["spec"] = spec
    for step in flat.steps:
        args, kwargs = (_nodes(value, nodes) for value in (step.args, step.kwargs))
        nodes.append(graph.call_function(_target(step.target), args, kwargs))
        nodes[-1].meta["source"] = step.source
    graph.output(_nodes(flat.results, nodes))
    return graph


def _target(name: str) -> Any:
    if name == "getitem":
        return operator.getitem
    target: Any = torch.ops
    for part in name.split("."):
        target = getattr(target, part)
    return target


def _nodes(value: Any, nodes: list[fx.Node]) -> Any:
    if isinstance(value, NodeRef):
        return nodes[value.index]
    if isinstance(value, tuple):
        return tuple(_nodes(item, nodes) for item in value)
    if isinstance(value, list):
        return [_nodes(item, nodes) for item in value]
    if isinstance(value, dict):
        return {key: _nodes(item, nodes) for key, item in value.items()}
    return value
