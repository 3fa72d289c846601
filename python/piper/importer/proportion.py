# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a backward gives gradients in proportion to what it starts from, and what follows where it does not.

A part of a batch starts its backward from the sum of its losses, and one division by the weight of the whole batch follows. Torch's own backwards are linear,
so it does not matter when that division is made. A hook that clamps a gradient is not: it has to see the gradient that PyTorch would show it, so there the
backward starts from one over the weight, and its results are multiplied by it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch
from torch import fx

from .capture import Joint, Origin
from .graphs import ALIASES, FULL_VIEWS, PART_VIEWS, SPLITS, aten, calls

#: The degree of a value: times s where what the backward starts from is times s**degree. None: of no degree.
Degree = float | None

_KEEP = {
    *(op.overloadpacket for op in ALIASES | FULL_VIEWS | (PART_VIEWS - {operator.getitem}) | SPLITS),
    *(aten.abs, aten.add, aten.amax, aten.amin, aten.cat, aten.clone, aten.cumsum, aten.flip, aten.gather, aten.index, aten.index_select),
    *(aten.leaky_relu, aten.linalg_vector_norm, aten.max, aten.maximum, aten.mean, aten.median, aten.min, aten.minimum, aten.neg, aten.norm),
    *(aten.relu, aten.repeat, aten.roll, aten.scatter, aten.slice_scatter, aten.select_scatter, aten.sort, aten.stack, aten.std, aten.sub),
    *(aten.sum, aten.topk, aten.tril, aten.triu, aten._to_copy, torch.ops.prims.convert_element_type),
}  # fmt: skip
_PRODUCTS = {aten.mul, aten.mm, aten.bmm, aten.mv, aten.dot, aten.convolution}
_COMPARISONS = {aten.gt, aten.lt, aten.ge, aten.le, aten.eq, aten.ne}
_OF_DEGREE_ZERO = {aten.sign, aten.sgn, aten.isnan, aten.isinf, aten.argmax, aten.argmin, aten.argsort}
_LOGIC = {aten.logical_and, aten.logical_or, aten.logical_not, aten.logical_xor, aten.bitwise_and, aten.bitwise_or, aten.bitwise_not, aten.any, aten.all}  # fmt: skip
_POWERS = {aten.sqrt: 0.5, aten.rsqrt: -0.5, aten.reciprocal: -1.0, aten.square: 2.0, aten.var: 2.0}
#: Whose results depend on the shape of what they read, not on its numbers.
OF_SHAPES = {aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like, aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty}  # fmt: skip
_ZEROS = {aten.zeros, aten.zeros_like, aten.new_zeros}
_FULLS = {aten.full: 1, aten.full_like: 1, aten.new_full: 2, aten.scalar_tensor: 0}
#: Of which a sum is that of their results: what may be done to a sum over the rows of a part.
LINEAR = _KEEP - {
    *(aten.abs, aten.amax, aten.amin, aten.leaky_relu, aten.linalg_vector_norm, aten.max, aten.maximum, aten.median, aten.min, aten.minimum),
    *(aten.norm, aten.relu, aten.sort, aten.std, aten.topk),
} | {*_PRODUCTS, aten.div, aten.where, aten.masked_fill}  # fmt: skip


class Proportion:
    """The degrees of a joint graph's values.

    Attributes:
        degrees: of what depends on what the backward starts from; the others are not in it.
        lines: of user code after which gradients are not in proportion; empty where all are.
    """

    def __init__(self, joint: Joint):
        self._module = joint.module
        self.degrees: dict[fx.Node, Degree] = {
            node: 1.0 for node, port in joint.placeholders.items() if port.kind == "tangent"
        }
        self._zero: set[fx.Node] = set()
        for node in joint.module.graph.nodes:
            if node.op == "get_attr":
                value = getattr(joint.module, node.target)
                if isinstance(value, torch.Tensor) and not value.count_nonzero():
                    self._zero.add(node)
            elif node.op == "call_function":
                self._visit(node)
        self.lines = self._find_lines(joint)

    def _visit(self, node: fx.Node) -> None:
        packet = packet_of(node)
        if self._is_zero(node, packet):
            self._zero.add(node)
        elif packet not in OF_SHAPES and any(operand in self.degrees for operand in node.all_input_nodes):
            origin = node.meta["origin"]
            rule = self._rule(node, packet) if origin.by_user and node.target is not operator.getitem else None
            self.degrees[node] = rule(node) if rule else self._common(node.all_input_nodes, alone=origin.accumulates)

    def _is_zero(self, node: fx.Node, packet: object) -> bool:
        if packet in _ZEROS:
            return True
        if packet in _FULLS and len(node.args) > _FULLS[packet]:
            return node.args[_FULLS[packet]] == 0
        operands = node.all_input_nodes
        if not node.meta["origin"].backward and packet not in _KEEP or any(o in self.degrees for o in operands):
            return False
        if packet in _PRODUCTS or packet is aten.div:
            return any(operand in self._zero for operand in node.args[: 1 if packet is aten.div else 2])
        rest = [operand for operand in operands if operand not in self._zero]
        return len(rest) < len(operands) and not any(
            operand.meta["origin"].backward for operand in rest if operand.op == "call_function"
        )

    def _rule(self, node: fx.Node, packet: object) -> Callable[[fx.Node], Degree]:
        if packet in _KEEP:
            return self._keeps
        if packet in _PRODUCTS:
            return lambda node: self._total(node.args[:2], (1, 1))
        if packet is aten.div:
            return lambda node: self._total(node.args[:2], (1, -1))
        if packet in _POWERS:
            return lambda node: self._times(node.args[0], _POWERS[packet])
        if packet is aten.pow and isinstance(node.args[1], (int, float)):
            return lambda node: self._times(node.args[0], node.args[1])
        if packet in _COMPARISONS:
            return lambda node: None if self._same(node.args[:2]) is None else 0.0
        if packet in _OF_DEGREE_ZERO:
            return lambda node: None if self._same(node.args[:1]) is None else 0.0
        if packet in _LOGIC:
            return lambda node: self._common(node.all_input_nodes)
        return _OTHERS.get(packet, lambda *_: lambda _node: None)(self, node)

    def degree(self, value: object) -> Degree:
        return self.degrees.get(value, 0.0) if isinstance(value, fx.Node) else 0.0

    def is_zero(self, value: object) -> bool:
        return value in self._zero if isinstance(value, fx.Node) else value == 0 and not isinstance(value, bool)

    def _common(self, operands: Sequence[fx.Node], alone: bool = False) -> Degree:
        """The degree that all have which have one. `alone`: the others count, but for zeros."""
        found = {self.degrees[o] for o in operands if o in self.degrees}
        if alone and any(o not in self.degrees and o not in self._zero for o in operands):
            return None
        return found.pop() if len(found) == 1 else None

    def _same(self, operands: Sequence[object]) -> Degree:
        """The degree of all operands, numbers among them, but for zeros."""
        found = {self.degree(operand) for operand in operands if not self.is_zero(operand)}
        return found.pop() if len(found) == 1 else None

    def _keeps(self, node: fx.Node) -> Degree:
        floating = [o for o in node.all_input_nodes if o in self.degrees or _is_floating(o)]
        numbers = (
            [node.args[1]] if packet_of(node) in (aten.add, aten.sub) and not isinstance(node.args[1], fx.Node) else []
        )
        return self._same([*floating, *numbers])

    def _total(self, operands: Sequence[object], signs: Sequence[int]) -> Degree:
        degrees = [self.degree(operand) for operand in operands]
        return None if None in degrees else sum(sign * degree for sign, degree in zip(signs, degrees, strict=True))

    def _times(self, operand: object, factor: float) -> Degree:
        degree = self.degree(operand)
        return None if degree is None else degree * factor

    def clamped(self, node: fx.Node) -> Degree:
        bounds = [*node.args[1:], *node.kwargs.values()]
        return self._same([node.args[0], *(bound for bound in bounds if bound is not None)])

    def chosen(self, node: fx.Node) -> Degree:
        return self._same(node.args[1:]) if self.degree(node.args[0]) == 0.0 else None

    def filled(self, node: fx.Node) -> Degree:
        return self._same([node.args[0], node.args[2]]) if self.degree(node.args[1]) == 0.0 else None

    def without_nan(self, node: fx.Node) -> Degree:
        # What stands for infinities does not count: no number is in proportion to them.
        fill = node.args[1] if len(node.args) > 1 and node.args[1] is not None else node.kwargs.get("nan") or 0.0
        return self._same([node.args[0], fill])

    def _find_lines(self, joint: Joint) -> tuple[str, ...]:
        values = joint.module.graph.output_node().args[0]
        bad = [
            value
            for value, port in zip(values, joint.outputs, strict=False)
            if port is not None
            and port.kind == "gradient"
            and isinstance(value, fx.Node)
            and not self._proportional(value)
        ]
        if not bad:
            return ()
        above = _ancestors(bad)
        by_user = [node for node in calls(joint.module.graph) if node in above and node.meta["origin"].by_user]
        guilty = [node for node in by_user if self._starts(node)] or by_user
        # A backward that returns a tensor it has kept makes no operation.
        return tuple(dict.fromkeys(node.meta["origin"].source for node in guilty)) or ("unknown line",)

    def _starts(self, node: fx.Node) -> bool:
        return self.degree(node) != 1.0 and any(self.degrees.get(o) == 1.0 for o in node.all_input_nodes)

    def _proportional(self, value: fx.Node) -> bool:
        return value in self._zero or self.degrees.get(value) == 1.0


_OTHERS = {
    aten.clamp: lambda proportion, _: proportion.clamped,
    aten.clamp_min: lambda proportion, _: proportion.clamped,
    aten.clamp_max: lambda proportion, _: proportion.clamped,
    aten.where: lambda proportion, _: proportion.chosen,
    aten.masked_fill: lambda proportion, _: proportion.filled,
    aten.nan_to_num: lambda proportion, _: proportion.without_nan,
}


def packet_of(node: fx.Node) -> object:
    """The operation without its overload."""
    return getattr(node.target, "overloadpacket", node.target)


def _is_floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _ancestors(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    found, stack = set(), list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def start_from_mean(joint: Joint, weight: float | None) -> None:
    """Lets the backward start from one over the weight of the whole batch, and multiplies the gradients by it again. None: the weight is the graph's own."""
    graph = joint.module.graph
    output = graph.output_node()
    values = list(output.args[0])
    if weight is not None:
        joint.seed = 1.0 / weight
    divisor: fx.Node | float = weight if weight is not None else _own_weight(joint, values)
    if weight is None:
        _divide_seeds(joint, divisor)
    with graph.inserting_before(output):
        for index, port in enumerate(joint.outputs):
            if port is not None and port.kind == "gradient" and isinstance(values[index], fx.Node):
                values[index] = _backward_call(graph, aten.mul.Tensor, (values[index], divisor), values[index])
    output.args = (tuple(values),)


def _divide_seeds(joint: Joint, divisor: fx.Node) -> None:
    for node in [node for node, port in joint.placeholders.items() if port.kind == "tangent"]:
        users = list(node.users)
        if not users:
            continue
        # A tangent's users stand behind the forward, and so behind its weight.
        with joint.module.graph.inserting_before(min(users)):
            scaled = _backward_call(joint.module.graph, aten.div.Tensor, (node, divisor), node)
        for user in users:
            user.replace_input_with(node, scaled)


def _own_weight(joint: Joint, values: Sequence[object]) -> fx.Node:
    """The weight of the loss, and one where that is zero: then nothing has a gradient."""
    graph = joint.module.graph
    weight = next(
        value
        for value, port in zip(values, joint.outputs, strict=False)
        if port and (port.kind, port.index) == ("output", 1)
    )
    with graph.inserting_after(weight):
        empty = _backward_call(graph, aten.eq.Scalar, (weight, 0), weight)
    empty.meta["val"] = weight.meta["val"] == 0
    with graph.inserting_after(empty):
        one = _backward_call(graph, aten._to_copy.default, (empty,), weight, {"dtype": weight.meta["val"].dtype})
    with graph.inserting_after(one):
        return _backward_call(graph, aten.add.Tensor, (weight, one), weight)


def _backward_call(graph: fx.Graph, target, args: tuple, like: fx.Node, kwargs: dict | None = None) -> fx.Node:
    node = graph.call_function(target, args, kwargs or {})
    node.meta = {"val": like.meta["val"], "origin": Origin(None, True, None, False, "")}
    return node
