# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes apart autograd's sums of gradients whose terms come from several chunks.

Terms of one chunk are added in it. What is left of a parameter's sum becomes a list of contributions; what is left of
an activation's sum becomes a node of its own ("glue") between the chunks, as at a skip connection, where the terms
arrive from chunks that know nothing of each other.
"""

from __future__ import annotations

from torch import fx

from .graphs import aten


class GradientSums:
    """The rewritten sums of a graph.

    Outputs that were such sums become tuples of the terms that are left.

    Attributes:
        glue: for each operation that belongs to glue, the first operation of the sum it is part of.
    """

    def __init__(self, graph: fx.Graph, chunks: dict[fx.Node, int]):
        self.glue: dict[fx.Node, fx.Node] = {}
        self._contributions: dict[fx.Node, tuple[fx.Node, ...]] = {}
        self._graph = graph
        self._chunks = chunks

    def split(self) -> None:
        for node in list(self._graph.nodes):
            if _is_sum(node) and not _continues(node):
                self._split(node)
        output = self._graph.output_node()
        output.args = (tuple(self._contributions.get(value, value) for value in output.args[0]),)

    def _split(self, root: fx.Node) -> None:
        members, terms = _collect(root)
        chunk_of = self._chunks.get
        home = min((chunk_of(term) for term in terms if chunk_of(term) is not None), default=None)
        if all(chunk_of(term) == home for term in terms) or any(
            chunk_of(user) == home and user not in self.glue for user in root.users
        ):
            return
        groups: dict[int | None, list[fx.Node]] = {}
        for term in terms:
            chunk = chunk_of(term)
            if any(chunk_of(user) == home and user not in members for user in term.users):
                chunk = home  # it reaches that chunk anyhow
            groups.setdefault(chunk, []).append(term)
        with self._graph.inserting_before(root):
            parts = [self._add(group, root, chunk) for chunk, group in groups.items()]
        if all(user.op == "output" for user in root.users):
            self._contributions[root] = tuple(parts)
            return
        if len(parts) > 1:
            with self._graph.inserting_before(root):
                total = self._add(parts, root, None)
        else:
            total = parts[0]
        root.replace_all_uses_with(total)

    def _add(self, terms: list[fx.Node], root: fx.Node, chunk: int | None) -> fx.Node:
        total, first = terms[0], None
        for term in terms[1:]:
            total = self._graph.call_function(aten.add.Tensor, (total, term))
            total.meta = dict(root.meta)
            if chunk is None:
                first = first or total
                self.glue[total] = first
                self._chunks.pop(total, None)
            else:
                self._chunks[total] = chunk
        return total


def _is_sum(node: fx.Node) -> bool:
    return node.op == "call_function" and node.meta["origin"].accumulates


def _continues(node: fx.Node) -> bool:
    return len(node.users) == 1 and _is_sum(next(iter(node.users)))


def _collect(root: fx.Node) -> tuple[set[fx.Node], list[fx.Node]]:
    """The additions of the sum that ends in `root`, and its terms in order."""
    members, terms = {root}, []

    def visit(node: fx.Node) -> None:
        for operand in node.args[:2]:
            if _is_sum(operand) and len(operand.users) == 1:
                members.add(operand)
                visit(operand)
            else:
                terms.append(operand)

    visit(root)
    return members, terms
