# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bf16 and f16: what is stored in them is computed in float32, and what is trained in them has a float32 master.

As eager PyTorch does on the CPU, every operation but a matrix product reads its operands as float32 and rounds its result once; products
accumulate in float32. Without this, sums would be made in 8 bits of mantissa, and numbers in the code (an epsilon, say) would be rounded first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor, fx

from .capture import Joint
from .graphs import FULL_VIEWS, PART_VIEWS, SPLITS, aten, calls

HALVES = (torch.bfloat16, torch.float16)
_CONVERT = torch.ops.prims.convert_element_type.default
_CONVERSIONS = {_CONVERT, aten._to_copy.default}
#: Operations that move elements, and products, which have forms of their own for these types.
_KEPT = FULL_VIEWS | PART_VIEWS | SPLITS | {
    *_CONVERSIONS, aten.mm.default, aten.bmm.default, aten.clone.default, aten.cat.default, aten.gather.default,
    aten.index.Tensor, aten.index_select.default, aten.embedding.default, aten.slice_scatter.default, aten.select_scatter.default,
    aten.constant_pad_nd.default, aten.flip.default, aten.full.default,
}  # fmt: skip


def is_half(value: object) -> bool:
    """Whether it is a tensor of bf16 or f16."""
    return isinstance(value, Tensor) and value.dtype in HALVES


def compute_in_float32(graph: fx.Graph) -> None:
    """Rewrites a decomposed graph so that no arithmetic but products is done in half precision."""
    for node in calls(graph):
        if node.target in _CONVERSIONS and is_half(node.meta.get("val")):
            _convert_numbers(graph, node)
        elif node.target not in _KEPT and any(map(is_half, _values(node))):
            _widen_operands(graph, node)
            _narrow_results(graph, node)


def _convert_numbers(graph: fx.Graph, node: fx.Node) -> None:
    """An integer becomes a half by way of float32: there is no instruction for it."""
    (operand,) = node.all_input_nodes
    if not operand.meta["val"].is_floating_point():
        with graph.inserting_before(node):
            node.replace_input_with(operand, _convert(graph, operand, torch.float32, node))


def _values(node: fx.Node) -> list:
    own = node.meta.get("val")
    return [operand.meta.get("val") for operand in node.all_input_nodes] + (
        list(own) if isinstance(own, (tuple, list)) else [own]
    )


def _widen_operands(graph: fx.Graph, node: fx.Node) -> None:
    wide: dict[fx.Node, fx.Node] = {}
    for operand in node.all_input_nodes:
        if is_half(operand.meta.get("val")):
            with graph.inserting_before(node):
                wide[operand] = _convert(graph, operand, torch.float32, node)
    node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: wide.get(operand, operand))
    if node.kwargs.get("dtype") in HALVES:
        node.kwargs = {**node.kwargs, "dtype": torch.float32}


def _narrow_results(graph: fx.Graph, node: fx.Node) -> None:
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        for item in list(node.users):
            _narrow_results(graph, item)
        node.meta["val"] = type(value)(part.float() if is_half(part) else part for part in value)
        return
    if not is_half(value):
        return
    narrow = value.dtype
    node.meta["val"] = value.float()
    with graph.inserting_after(node):
        result = _convert(graph, node, narrow, node)
    node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)


def _convert(graph: fx.Graph, value: fx.Node, dtype: torch.dtype, like: fx.Node) -> fx.Node:
    node = graph.call_function(_CONVERT, (value, dtype))
    node.meta = {**like.meta, "val": value.meta["val"].to(dtype)}
    return node


def use_masters(joint: Joint, trained: Collection[str]) -> None:
    """Makes the half-precision parameters named in `trained` float32 inputs, which each reader rounds for itself, and their gradients float32.

    A gradient's terms are added up in float32, also those of one parameter used several times.
    """
    graph = joint.module.graph
    masters = {
        port.name: node
        for node, port in joint.placeholders.items()
        if port.kind == "parameter" and port.name in trained and is_half(node.meta["val"])
    }
    for node in masters.values():
        narrow = node.meta["val"].dtype
        node.meta["val"] = node.meta["val"].float()
        for user in [user for user in node.users if user.op != "output"]:
            with graph.inserting_before(user):
                user.replace_input_with(node, _copy(graph, node, narrow, user))
    output = graph.output_node()
    values = list(output.args[0])
    for index, port in enumerate(joint.outputs):
        if port is not None and port.kind == "gradient" and port.name in masters and isinstance(values[index], fx.Node):
            values[index] = _in_float32(graph, values[index])
    output.args = (tuple(values),)
    graph.eliminate_dead_code()


def _in_float32(graph: fx.Graph, value: fx.Node) -> fx.Node:
    """`value` in float32; a sum of gradients becomes a sum in float32."""
    if not is_half(value.meta["val"]):
        return value
    if value.op == "call_function" and value.target is aten.add.Tensor and value.meta["origin"].accumulates:
        terms = [_in_float32(graph, operand) for operand in value.args]
        with graph.inserting_before(value):
            total = graph.call_function(aten.add.Tensor, tuple(terms))
        total.meta = {**value.meta, "val": value.meta["val"].float()}
        return total
    with graph.inserting_after(value):
        return _copy(graph, value, torch.float32, value)


def _copy(graph: fx.Graph, value: fx.Node, dtype: torch.dtype, like: fx.Node) -> fx.Node:
    node = graph.call_function(aten._to_copy.default, (value,), {"dtype": dtype})
    origin = replace(like.meta["origin"], accumulates=False)
    node.meta = {**like.meta, "origin": origin, "val": value.meta["val"].to(dtype)}
    return node
