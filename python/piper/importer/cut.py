# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts a joint graph into functions: per chunk one forward and one backward (B, or I and W), and the sums between them.

A value that another chunk needs is an ordinary result. What only the chunk's own backward needs is saved, views as
their bases; a backward reads inputs, states and other nodes' results directly and makes views again itself. Where the
backward is divided, the forward saves in two bundles: what only I reads, which is free after it, and what W reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import fx

from .errors import ImporterError
from .graphs import aten, calls, reachable, structural_hash, subgraph
from .imported import Function, TensorSpec
from .regions import Tags
from .saving import made_again

#: ("F", chunk), ("B", chunk) or ("I", chunk) and ("W", chunk), or ("G", number of the sum)
Key = tuple[str, int]


@dataclass
class Piece:
    """A node of the DAG before names are given: `operands`, `results` and the saved values are nodes of the joint
    graph.

    `takes` are bundles of other pieces, as (key, number), with their values; `gives` the values of its own bundles.
    """

    key: Key
    pass_: str
    tags: Tags
    operands: list[fx.Node]
    results: list[fx.Node]
    takes: list[tuple[Key, int, list[fx.Node]]] = field(default_factory=list)
    gives: list[list[fx.Node]] = field(default_factory=list)
    function: Function | None = None

    @property
    def saved_operands(self) -> list[fx.Node]:
        return [node for _, _, bundle in self.takes for node in bundle]

    @property
    def saved_results(self) -> list[fx.Node]:
        return [node for bundle in self.gives for node in bundle]

    def where(self) -> str:
        """The module and the first line of user code in it."""
        for node in calls(self.function.graph) if self.function is not None else ():
            origin = node.meta["origin"]
            if origin.source and not (origin.backward and self.pass_ == "F"):
                module = f"module '{origin.scope.module}' at " if origin.scope and origin.scope.module else ""
                return module + origin.source
        return "unknown line"


class Cutter:
    """Makes the pieces of one graph.

    Args:
        graph: the joint graph.
        keys: the key of every operation that belongs to a piece.
        tags: the tags of each chunk.
        recipes: operations that are copied into each piece which uses them.
        wanted: values that have to be results whoever uses them, in order: losses, gradients, buffers.
    """

    def __init__(
        self,
        graph: fx.Graph,
        keys: dict[fx.Node, Key],
        tags: list[Tags],
        recipes: set[fx.Node],
        wanted: Iterable[fx.Node],
    ):
        self._keys, self._tags, self._recipes = keys, tags, recipes
        self._position = {node: position for position, node in enumerate(graph.nodes)}
        self._bodies: dict[Key, list[fx.Node]] = {}
        for node in calls(graph):
            if node in keys:
                self._bodies.setdefault(keys[node], []).append(node)
        # Results stand in the order of what is wanted, then of the graph: that of gradients in a trace may change with
        # the number of rows.
        self._rank = {node: rank for rank, node in enumerate(dict.fromkeys(wanted))}
        # What another piece reads is a result whatever the owner's backward does with it.
        self._crossing = set(self._rank)
        for key, body in self._bodies.items():
            self._crossing |= {
                node for node in _external(body) if node in keys and keys[node] not in (key, *givers(key))
            }

    def pieces(self) -> list[Piece]:
        bodies = {key: self._with_copies(key, body) for key, body in self._bodies.items()}
        external = {key: _external(body) for key, body in bodies.items()}
        divided = any(kind == "W" for kind, _ in self._bodies)
        pieces = []
        for key in bodies:
            saved = {node for node in external[key] if self._is_private(node, givers(key))}
            operands = [node for node in external[key] if node not in saved]
            results = [node for node in self._bodies[key] if node in self._crossing]
            results.sort(key=lambda node: self._rank.get(node, len(self._rank)))
            pass_ = ("I" if divided else "B") if key[0] == "G" else key[0]
            pieces.append(Piece(key, pass_, self._piece_tags(key), operands, results))
        by_key = {piece.key: piece for piece in pieces}
        for giver in by_key:
            self._bundle(giver, by_key, external)
        for piece in pieces:
            _check_single_tensors(piece)
            piece.function = _function(piece, bodies[piece.key])
        return _in_order(pieces, self._keys)

    def _is_private(self, node: fx.Node, owners: tuple[Key, ...]) -> bool:
        return self._keys.get(node) in owners and node not in self._crossing

    def _bundle(self, giver: Key, pieces: dict[Key, Piece], external: dict[Key, list[fx.Node]]) -> None:
        """What the later passes of its chunk read of the values of `giver`, in bundles by who reads last."""
        readers = sorted(key for key in pieces if giver in givers(key))
        read = {key: {node for node in external[key] if self._is_private(node, (giver,))} for key in readers}
        last = {node: key for key in readers for node in read[key]}  # W comes after I
        for number, key in enumerate(readers):
            bundle = sorted((node for node, reader in last.items() if reader == key), key=self._position.__getitem__)
            pieces[giver].gives.append(bundle)
            for reader in readers:
                if read[reader] & set(bundle):
                    pieces[reader].takes.append((giver, number, bundle))

    def _piece_tags(self, key: Key) -> Tags:
        if key[0] != "G":
            return self._tags[key[1]]
        users = [
            self._keys[user]
            for node in self._bodies[key]
            for user in node.users
            if user in self._keys and self._keys[user] != key
        ]
        return (
            self._tags[max(chunk for kind, chunk in users if kind != "G")]
            if any(kind != "G" for kind, _ in users)
            else ()
        )

    def _with_copies(self, key: Key, body: list[fx.Node]) -> list[fx.Node]:
        """`body` and what is made again in it: constants, and in a backward some of its own forward's values."""
        inside, again = set(body), set()
        if givers(key):
            again = made_again(body, lambda node: self._is_private(node, givers(key)), self._position.__getitem__)
        start = [*body, *again]
        recipes = reachable(start, lambda node: [o for o in node.all_input_nodes if o in self._recipes])
        return sorted({*inside, *again, *recipes}, key=self._position.__getitem__)


def givers(key: Key) -> tuple[Key, ...]:
    """The earlier pieces of the same chunk, which save values for this one."""
    kinds = {"B": ("F",), "I": ("F",), "W": ("F", "I")}.get(key[0], ())
    return tuple((kind, key[1]) for kind in kinds)


def _external(body: list[fx.Node]) -> list[fx.Node]:
    inside = set(body)
    return list(dict.fromkeys(operand for node in body for operand in node.all_input_nodes if operand not in inside))


def _check_single_tensors(piece: Piece) -> None:
    for node in [*piece.operands, *piece.results, *piece.saved_operands]:
        if not isinstance(node.meta.get("val"), torch.Tensor):
            raise ImporterError(
                f"{node.meta['origin'].source}: the result of '{node.target}' is no tensor and can't pass between "
                "chunks"
            )


def spec_of(node: fx.Node) -> TensorSpec:
    return TensorSpec(tuple(node.meta["val"].shape), node.meta["val"].dtype)


def _function(piece: Piece, body: list[fx.Node]) -> Function:
    inputs, outputs = piece.operands + piece.saved_operands, piece.results + piece.saved_results
    graph = subgraph(body, inputs, outputs)
    name = f"{piece.pass_}_{structural_hash(graph, len(piece.saved_operands), len(piece.saved_results))}"
    specs = [
        tuple(spec_of(node) for node in nodes)
        for nodes in (piece.operands, piece.saved_operands, piece.results, piece.saved_results)
    ]
    return Function(name, graph, *specs)


def _in_order(pieces: list[Piece], keys: dict[fx.Node, Key]) -> list[Piece]:
    """Dependency order: forwards by chunk, then backwards from the last chunk on, each sum as soon as its terms are
    there, weight gradients at the end.
    """

    def rank(piece: Piece) -> tuple[int, int]:
        kind, number = piece.key
        return {"F": (0, number), "G": (1, number), "B": (2, -number), "I": (2, -number), "W": (3, -number)}[kind]

    waiting = sorted(pieces, key=rank)
    done: set[Key] = set()
    order = []
    while waiting:
        ready = next(
            (p for p in waiting if all(keys[n] in done for n in p.operands + p.saved_operands if n in keys)), None
        )
        if ready is None:
            raise ImporterError(
                "the chunks depend on each other in a circle: "
                + ", ".join(f"{p.key[0]} {dict(p.tags)} ({p.where()})" for p in waiting)
            )
        waiting.remove(ready)
        done.add(ready.key)
        order.append(ready)
    return order


def identity(graph: fx.Graph, value: fx.Node) -> fx.Node:
    """A copy of `value` as the last operation of the graph."""
    with graph.inserting_before(graph.output_node()):
        copy = graph.call_function(aten.clone.default, (value,))
    copy.meta = dict(value.meta)
    return copy
