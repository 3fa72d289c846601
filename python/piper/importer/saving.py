# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides, for one backward, which values of its own forward are saved and which it makes again.

Views are made again from their bases, and so is what a few cheap elementwise operations give from values that are at
hand anyway: a norm's output from its input and the reciprocal root, a rotated query from the query. That saves their
memory and the forward's writes for a little arithmetic, which fuses into the backward's own loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import fx

from .graphs import aten, is_part_view, is_split, is_view, reachable

#: Elementwise operations that cost about as much as reading their result.
CHEAP = {
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Scalar, aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor,
    aten.div.Scalar, aten.neg.default, aten.abs.default, aten.relu.default, aten.silu.default, aten.sigmoid.default, aten.leaky_relu.default,
    aten._to_copy.default, aten.where.self, aten.masked_fill.Scalar, aten.pow.Tensor_Scalar, aten.bitwise_not.default, aten.logical_not.default,
    aten.clone.default, aten.cat.default, aten.ne.Scalar, aten.eq.Scalar, aten.gt.Scalar, aten.lt.Scalar, aten.ge.Scalar, aten.le.Scalar, aten.clamp.default,
}  # fmt: skip


#: The most operations that make a value again are worth, in elements computed for each element of the value.
MOST_WORK = 8


def made_again(body: list[fx.Node], own: Callable[[fx.Node], bool], position: Callable[[fx.Node], int]) -> set[fx.Node]:
    """The values of the forward that the backward `body` makes again; what else of the forward it reads has to be
    saved.

    Args:
        own: whether a value is private to the backward's own forward; all other values are at hand.
        position: the order of the graph.
    """
    inside = set(body)
    read = [operand for node in body for operand in node.all_input_nodes if operand not in inside and own(operand)]
    needed = reachable(read, lambda node: node.all_input_nodes if is_view(node) and own(node) else ())
    kept = {node for node in needed if own(node) and not is_view(node)}
    # A slice is made again where its base is at hand, and saved itself where it is not: the base may be much larger.
    kept_bases = {node for node in kept if not _is_part(node)}
    again: set[fx.Node] = set()

    def at_hand(node: fx.Node) -> bool:
        return not own(node) or node in kept_bases or node in again or (_is_any_view(node) and at_hand(node.args[0]))

    def recipe(node: fx.Node, depth: int = 0) -> set[fx.Node] | None:
        """The cheap operations that make `node` from what is at hand, or None; `node` itself does not count as at
        hand.
        """
        if depth > 2 * MOST_WORK:
            return None
        if _is_any_view(node):
            operands, steps = [node.args[0]], set()
        elif node.target in CHEAP and not _small(node):
            operands, steps = node.all_input_nodes, {node}
        else:
            return None
        for operand in operands:
            more = set() if at_hand(operand) else recipe(operand, depth + 1)
            if more is None or len(steps | more) > MOST_WORK:
                return None
            steps |= more
        return steps

    for node in sorted(kept, key=position):
        steps = recipe(node)
        if (
            steps is not None
            and sum(step.meta["val"].numel() for step in steps) <= MOST_WORK * node.meta["val"].numel()
        ):
            again |= {node, *steps}
            kept_bases.discard(node)

    def follow(node: fx.Node) -> Iterable[fx.Node]:
        return (
            o
            for o in node.all_input_nodes
            if own(o) and o not in inside and (o in again or _is_any_view(o) and at_hand(o))
        )

    return {node for node in reachable(body, follow) if node not in inside}


def _is_part(node: fx.Node) -> bool:
    return is_part_view(node) or is_split(node)


def _is_any_view(node: fx.Node) -> bool:
    return is_view(node) or _is_part(node)


def _small(node: fx.Node) -> bool:
    """Not worth an operation: at most one value for each of 16 that the widest operand has."""
    widest = max((operand.meta["val"].numel() for operand in node.all_input_nodes), default=0)
    return node.meta["val"].numel() * 16 <= widest
