# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From one captured joint graph to its pieces, with every reference between them resolved to a name or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from . import advice, cross_entropy
from .capture import Joint, Origin, Port
from .constants import Constants, constant_calls, fold, same_bits
from .cut import Cutter, Key, Piece, identity
from .division import divide
from .errors import ImporterError
from .graphs import aten, calls, remove_aliases
from .imported import InputRef, Result, ResultRef, StateRef, Value
from .regions import backward_chunks, forward_chunks
from .sums import GradientSums


@dataclass
class Program:
    """The pieces of a step for one number of rows; lists run parallel to `pieces`."""

    pieces: list[Piece]
    operands: list[tuple[Value, ...]]
    results: list[tuple[Result, ...]]
    takes: list[tuple[tuple[int, int], ...]]
    gives: list[tuple[int, ...]]
    gradients: dict[str, list[ResultRef]]
    writes: dict[str, ResultRef]
    loss: tuple[ResultRef, ResultRef]
    constants: dict[str, torch.Tensor]

    def structure(self) -> list[tuple]:
        """The pieces and what each gives to others: what has to be the same for every number of rows."""
        ranks = [[(len(spec.shape), spec.dtype) for spec in piece.function.results] for piece in self.pieces]
        return [(p.key, p.tags, kinds, r) for p, kinds, r in zip(self.pieces, self.results, ranks, strict=True)]

    def difference(self, other: Program) -> str:
        """What differs between the structures of two programs, or ""."""
        if [piece.key for piece in self.pieces] != [piece.key for piece in other.pieces]:
            return f"{len(self.pieces)} chunks and {len(other.pieces)} chunks"
        if self.structure() != other.structure():
            return "its chunks give other results"
        for index, piece in enumerate(self.pieces):
            for what in ("operands", "takes", "gives"):
                if getattr(self, what)[index] != getattr(other, what)[index]:
                    return f"the {what} of {piece.pass_} {dict(piece.tags)} differ"
        for name, value in self.constants.items():
            if name not in other.constants or not same_bits(value, other.constants[name]):
                return f"the value of {name}, computed in forward, differs"
        if (self.gradients, self.writes, self.loss) != (other.gradients, other.writes, other.loss):
            return "its gradients, buffers or losses come from different chunks"
        return ""


def row_dependent_constants(joints: Sequence[Joint]) -> list[set[fx.Node]]:
    """For each graph the constants whose shape or numbers change with the number of rows (all of them, where the graphs do
    not correspond).
    """
    for joint in joints:
        # What the gradient of the loss makes of itself alone is constant too.
        _seed_backward(joint)
        remove_aliases(joint.module.graph)
    lists = [constant_calls(joint.module.graph) for joint in joints]
    if len({len(nodes) for nodes in lists}) > 1:
        return [set(nodes) for nodes in lists]
    changing = [
        position
        for position, nodes in enumerate(zip(*lists, strict=False))
        if len({(_shape(node), _numbers(node)) for node in nodes}) > 1
    ]
    return [{nodes[position] for position in changing} for nodes in lists]


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _numbers(node: fx.Node) -> str:
    """The arguments of an operation but for its operands."""
    return repr(fx.map_arg((node.args, node.kwargs), lambda _: None))


def program_of(
    joint: Joint, row_dependent: set[fx.Node], aliases: Mapping[str, str], inputs: Sequence[str], divided: bool = False
) -> Program:
    """Cuts `joint`. `aliases` maps parameter and buffer names to states, `inputs` are the names of the batch's tensors
    in order, `divided` makes two nodes of a backward, I and W.
    """
    _refuse_random(joint)
    graph = joint.module.graph
    cross_entropy.fuse(graph)
    constants = fold(joint.module, row_dependent)
    names = _names(joint, constants, aliases, inputs)
    parameters = {node for node, port in joint.placeholders.items() if port.kind == "parameter"}
    forward, tags = forward_chunks(graph, constants.recipes.__contains__, parameters.__contains__)
    if not tags:
        raise ImporterError("the model computes nothing from its inputs and parameters")
    forward.update(_keep_overwritten(joint, forward, constants, len(tags) - 1))
    backward = backward_chunks(graph, forward, constants.recipes.__contains__, len(tags) - 1)
    sums = GradientSums(graph, backward)
    sums.split()
    graph.eliminate_dead_code()
    units = {first: number for number, first in enumerate(dict.fromkeys(sums.glue.values()))}
    keys: dict[fx.Node, Key] = {node: ("F", chunk) for node, chunk in forward.items()}
    keys.update({node: ("B", chunk) for node, chunk in backward.items()})
    keys.update({node: ("G", units[first]) for node, first in sums.glue.items()})
    outputs = _outputs(joint, keys, len(tags) - 1)
    if divided:
        divide(graph, keys)
    pieces = Cutter(graph, keys, tags, constants.recipes, [node for _, nodes in outputs for node in nodes]).pieces()
    return _resolve(
        pieces, keys, names, outputs, aliases, {names[node].name: value for node, value in constants.values.items()}
    )


def _refuse_random(joint: Joint) -> None:
    found: dict[str, dict[str, None]] = {}
    for node in calls(joint.module.graph):
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            places = found.setdefault(str(node.target), {})
            places[node.meta["origin"].place or "unknown line"] = None
    if found:
        listed = "; ".join(
            f"{_first(list(places))}: '{operation}' ({advice.for_random_numbers(operation)})"
            for operation, places in found.items()
        )
        raise ImporterError(f"random numbers in forward are not supported: {listed}")


def _first(places: list[str], most: int = 8) -> str:
    """A model of many layers does the same in each."""
    more = f"; and {len(places) - most} more" if len(places) > most else ""
    return "; ".join(places[:most]) + more


def _seed_backward(joint: Joint) -> None:
    """The backward starts from the summed loss: its gradient is one, or what the joint says."""
    graph = joint.module.graph
    tangents = [node for node, port in joint.placeholders.items() if port.kind == "tangent"]
    if not tangents:
        return
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in tangents:
        value = node.meta["val"]
        with graph.inserting_before(first):
            one = graph.call_function(
                aten.full.default, (list(value.shape), joint.seed), {"dtype": value.dtype, "device": value.device}
            )
        one.meta = {"val": value, "origin": Origin(None, True, None, False, "")}
        node.replace_all_uses_with(one)
        graph.erase_node(node)
        del joint.placeholders[node]


def _names(
    joint: Joint, constants: Constants, aliases: Mapping[str, str], inputs: Sequence[str]
) -> dict[fx.Node, Value]:
    prefix = "constant."
    while any(state.startswith(prefix) for state in aliases.values()):
        prefix = f"_{prefix}"
    names: dict[fx.Node, Value] = {node: StateRef(f"{prefix}{index}") for index, node in enumerate(constants.values)}
    for node, port in joint.placeholders.items():
        names[node] = InputRef(inputs[port.index]) if port.kind == "input" else StateRef(aliases[port.name])
    return names


def _output_values(joint: Joint) -> list[tuple[tuple[fx.Node, ...], Port]]:
    """Each output's value, or the terms of which it is the sum (GradientSums)."""
    values = joint.module.graph.output_node().args[0]
    return [
        (value if isinstance(value, tuple) else (value,), port)
        for value, port in zip(values, joint.outputs, strict=False)
        if port is not None and isinstance(value, (fx.Node, tuple))
    ]


def _keep_overwritten(joint: Joint, forward: dict[fx.Node, int], constants: Constants, last: int) -> dict[fx.Node, int]:
    """Copies, in the forward, of buffers that the step overwrites and the backward reads: by then they hold another
    microbatch's value.
    """
    graph = joint.module.graph
    written = {port.name for _, port in _output_values(joint) if port.kind == "write"}
    copies: dict[fx.Node, int] = {}
    for node, port in joint.placeholders.items():
        readers = [user for user in node.users if user.op == "call_function" and user.meta["origin"].backward]
        if port.kind != "buffer" or port.name not in written or not readers:
            continue
        chunk = min((forward[user] for user in node.users if user in forward), default=last)
        with graph.inserting_before(next(n for n in graph.nodes if n.op == "call_function")):
            copy = graph.call_function(aten.clone.default, (node,))
        copy.meta = {"val": node.meta["val"], "origin": Origin(None, False, None, False, "")}
        for user in readers:
            user.replace_input_with(node, copy)
        copies[copy] = chunk
    return copies


def _outputs(joint: Joint, keys: dict[fx.Node, Key], last: int) -> list[tuple[Port, list[fx.Node]]]:
    """The values of each output, each made by an operation of the right pass."""
    graph = joint.module.graph
    copies: dict[tuple[fx.Node, str], fx.Node] = {}
    outputs = []
    for values, port in _output_values(joint):
        kinds = ("B", "G") if port.kind == "gradient" else ("F",)
        nodes = []
        for node in values:
            if node not in keys or keys[node][0] not in kinds:
                if (node, kinds[0]) not in copies:
                    copy = copies[node, kinds[0]] = identity(graph, node)
                    keys[copy] = (kinds[0], keys[node][1] if node in keys and keys[node][0] != "G" else last)
                node = copies[node, kinds[0]]
            nodes.append(node)
        outputs.append((port, nodes))
    return outputs


def _resolve(
    pieces: list[Piece], keys: dict[fx.Node, Key], names: Mapping[fx.Node, Value], outputs, aliases, constants
) -> Program:
    index = {piece.key: number for number, piece in enumerate(pieces)}
    refs = {
        node: ResultRef(number, position)
        for number, piece in enumerate(pieces)
        for position, node in enumerate(piece.results)
    }
    kinds: dict[fx.Node, Result] = {}
    gradients: dict[str, list[ResultRef]] = {}
    writes: dict[str, ResultRef] = {}
    loss: dict[int, ResultRef] = {}
    for port, nodes in sorted(outputs, key=lambda output: ("output", "gradient", "write").index(output[0].kind)):
        for node in nodes:
            if port.kind == "output":
                loss[port.index] = refs[node]
                kinds.setdefault(node, Result("loss_weight" if port.index else "loss_sum"))
                continue
            state = aliases[port.name]
            if port.kind == "gradient":
                gradients.setdefault(state, []).append(refs[node])
                kinds.setdefault(node, Result("gradient", state))
            else:
                if state in writes:
                    raise ImporterError(f"buffer '{state}' is written under two names: expected one")
                writes[state] = refs[node]
                kinds.setdefault(node, Result("buffer", state))
    operands = [tuple(names[node] if node in names else refs[node] for node in piece.operands) for piece in pieces]
    results = [tuple(kinds.get(node, Result("activation")) for node in piece.results) for piece in pieces]
    takes = [tuple((index[giver], number) for giver, number, _ in piece.takes) for piece in pieces]
    gives = [tuple(map(len, piece.gives)) for piece in pieces]
    return Program(pieces, operands, results, takes, gives, gradients, writes, (loss[0], loss[1]), constants)
