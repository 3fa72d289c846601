# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""uint8: its bits are kept as int8, as MLIR's types have no sign, and it is computed in int64 from the numbers 0 to 255.

What 8 bits can't hold wraps around when a result is cut back to them, as in eager PyTorch. So nothing depends on whether torch-mlir takes eight bits for a
signed or an unsigned number, which differs from operation to operation.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from .graphs import FULL_VIEWS, PART_VIEWS, SPLITS, aten, calls

_CONVERT = torch.ops.prims.convert_element_type.default
_CONVERSIONS = {_CONVERT, aten._to_copy.default}
#: Operations that move elements, whatever their bits mean; those of the second set by positions, which are operands, too.
_MOVES = FULL_VIEWS | PART_VIEWS | SPLITS | {
    aten.clone.default, aten.cat.default, aten.slice_scatter.default, aten.select_scatter.default, aten.flip.default,
}  # fmt: skip
_PICKS = {aten.gather.default, aten.index.Tensor, aten.index_select.default, aten.embedding.default}
#: Operations that torch computes in the common type of their first two operands: a number beside uint8 becomes one of 0 to 255 first.
_COMMON_TYPE = {
    "add", "sub", "rsub", "mul", "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le", "gt", "ge",
    "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "masked_fill",
}  # fmt: skip


def is_uint8(value: object) -> bool:
    """Whether it is a tensor of uint8."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8


def compute_in_int64(graph: fx.Graph) -> None:
    """Rewrites a decomposed graph so that none of its values is of uint8."""
    rewriter = _Rewriter(graph)
    for node in list(graph.nodes):
        if node.op == "placeholder" and is_uint8(node.meta.get("val")):
            rewriter.keep_bits(node)
    for node in calls(graph):
        rewriter.rewrite(node)


class _Rewriter:
    def __init__(self, graph: fx.Graph):
        self._graph = graph
        # Nodes that hold the bits of a uint8 as int8, and their numbers once they are asked for.
        self._bits: set[fx.Node] = set()
        self._numbers: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}

    def keep_bits(self, node: fx.Node) -> None:
        value = node.meta["val"]
        node.meta["val"] = value.to(torch.int8) if isinstance(value, Tensor) else [v.to(torch.int8) for v in value]
        self._bits.add(node)

    def rewrite(self, node: fx.Node) -> None:
        value = node.meta["val"]
        operands = [operand for operand in node.all_input_nodes if operand in self._bits]
        parts = list(value) if isinstance(value, (tuple, list)) else [value]
        if not operands and not any(map(is_uint8, parts)):
            return
        if self._moves(node, len(operands)):
            self.keep_bits(node)
            return
        kinds = self._kinds(node)
        wide = torch.int32 if node.target in _CONVERSIONS and value.is_floating_point() else torch.int64
        numbers = {operand: self._number(operand, wide) for operand in operands}
        node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: numbers.get(operand, operand))
        node.args, node.kwargs = _map((node.args, dict(node.kwargs)), _int64_for_uint8)
        if kinds == torch.uint8:
            self._wrap_others(node, numbers.values())
        node.meta["val"] = _result(node)
        self._cut_back(node, value)

    def _moves(self, node: fx.Node, count: int) -> bool:
        if node.target is operator.getitem:
            return node.args[0] in self._bits
        return count > 0 and (
            node.target in _MOVES
            and count == len(node.all_input_nodes)
            or node.target in _PICKS
            and count == 1
            and node.args[0] in self._bits
        )

    def _kinds(self, node: fx.Node) -> torch.dtype | None:
        """The type in which torch computes an operation of `_COMMON_TYPE`; None for others."""
        if node.target is not aten.div.Tensor_mode and node.target.overloadpacket.__name__ not in _COMMON_TYPE:
            return None
        kind = None
        for operand in node.args:
            if isinstance(operand, fx.Node):
                operand = operand.meta["val"].to(torch.uint8) if operand in self._bits else operand.meta["val"]
            if operand is None or isinstance(operand, Tensor) and operand.dtype == torch.bool:
                continue
            kind = operand if kind is None else torch.empty((), dtype=torch.result_type(kind, operand), device="meta")
        return kind.dtype if isinstance(kind, Tensor) else None

    def _number(self, bits: fx.Node, dtype: torch.dtype) -> fx.Node:
        """The number 0 to 255 that the bits stand for."""
        if (bits, dtype) not in self._numbers:
            with self._graph.inserting_after(bits):
                signed = self._call(bits, _CONVERT, bits, dtype)
            with self._graph.inserting_after(signed):
                self._numbers[bits, dtype] = self._call(bits, aten.bitwise_and.Scalar, signed, 255)
        return self._numbers[bits, dtype]

    def _wrap_others(self, node: fx.Node, numbers: Any) -> None:
        def wrap(operand: Any) -> Any:
            if isinstance(operand, int) and not isinstance(operand, bool):
                return operand & 255
            if isinstance(operand, fx.Node) and operand not in numbers and operand.meta["val"].dtype != torch.bool:
                return self._before(node, aten.bitwise_and.Scalar, operand, 255)
            return operand

        numbers = set(numbers)
        node.args = tuple(map(wrap, node.args))

    def _cut_back(self, node: fx.Node, before: Any) -> None:
        if not isinstance(before, Tensor):
            for item in list(node.users):
                self._cut_item(item, before[item.args[1]])
            return
        self._cut_item(node, before)

    def _cut_item(self, node: fx.Node, before: Tensor) -> None:
        """Gives users of `node` a value of the type that it had."""
        if node.target is operator.getitem:
            node.meta["val"] = node.args[0].meta["val"][node.args[1]]
        if node.meta["val"].dtype == before.dtype:
            return
        result = node
        for dtype in (torch.int64, torch.int8) if before.dtype == torch.uint8 else (before.dtype,):
            if result.meta["val"].dtype != dtype:
                with self._graph.inserting_after(result):
                    result = self._call(node, _CONVERT, result, dtype)
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user not in (result, result.args[0]))
        if before.dtype == torch.uint8:
            self._bits.add(result)

    def _before(self, node: fx.Node, target: Any, *args: Any) -> fx.Node:
        with self._graph.inserting_before(node):
            return self._call(node, target, *args)

    def _call(self, like: fx.Node, target: Any, *args: Any) -> fx.Node:
        node = self._graph.call_function(target, args)
        node.meta = {**like.meta}
        node.meta["val"] = _result(node)
        return node


def _result(node: fx.Node) -> Any:
    """What the operation gives, as shapes alone."""
    if not node.all_input_nodes:
        return node.meta["val"].to(torch.int64)
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    return node.target(*args, **kwargs)


def _int64_for_uint8(value: Any) -> Any:
    return torch.int64 if value is torch.uint8 else value


def _map(value: Any, leaf: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_map(item, leaf) for item in value)
    if isinstance(value, dict):
        return {key: _map(item, leaf) for key, item in value.items()}
    return leaf(value)
