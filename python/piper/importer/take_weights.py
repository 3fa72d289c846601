# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes the weights of a loss out of a captured step, for the host to compute (loss_weights.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from .capture import Joint
from .graphs import reachable
from .loss_weights import WeightGraph
from .serialize import flatten

_MOST_OPERATIONS = 100


def take_weights(joint: Joint, inputs: Sequence[str], aliases: Mapping[str, str]) -> WeightGraph | None:
    """Takes the outputs behind the loss's sum and weight out of a captured step; None where one depends on more than batch and buffers."""
    output = joint.module.graph.output_node()
    extra = [
        index
        for index, port in enumerate(joint.outputs)
        if port is not None and port.kind == "output" and port.index > 1
    ]
    nodes = [output.args[0][index] for index in sorted(extra, key=lambda index: joint.outputs[index].index)]
    graph = _graph_of(joint, nodes, inputs, aliases)
    kept = [index for index in range(len(joint.outputs)) if index not in extra]
    output.args = (tuple(output.args[0][index] for index in kept),)
    joint.outputs[:] = [joint.outputs[index] for index in kept]
    return graph


def _graph_of(joint: Joint, nodes: Sequence[fx.Node], inputs: Sequence[str], aliases) -> WeightGraph | None:
    found = reachable(nodes, lambda node: node.all_input_nodes)
    operands, copy, copies = [], fx.Graph(), {}
    ordered = [node for node in joint.module.graph.nodes if node in found]
    if len(ordered) > _MOST_OPERATIONS:
        return None
    for node in ordered:
        if node.op == "call_function":
            continue
        operand = _operand(joint, node, inputs, aliases)
        if operand is None:
            return None
        operands.append(operand)
        copies[node] = copy.placeholder(f"arg{len(operands)}")
        copies[node].meta = {"val": operand[1] if operand[0] == "constant" else node.meta["val"]}
    for node in ordered:
        if node.op == "call_function":
            copies[node] = copy.node_copy(node, lambda n: copies[n])
            copies[node].meta = {"source": ""}
    copy.output(tuple(copies[node] for node in nodes))
    return WeightGraph(tuple(operands), flatten("weights", copy))


def _operand(joint: Joint, node: fx.Node, inputs: Sequence[str], aliases: Mapping[str, str]) -> tuple[str, Any] | None:
    if node.op == "get_attr":
        value = getattr(joint.module, node.target)
        return ("constant", value.detach()) if isinstance(value, torch.Tensor) else None
    port = joint.placeholders[node]
    if port.kind == "input":
        return "input", inputs[port.index]
    return ("state", aliases[port.name]) if port.kind == "buffer" else None
