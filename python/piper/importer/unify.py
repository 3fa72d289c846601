# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the programs captured for several numbers of rows one structure.

Torch may take another path at another number of rows (at one row a transposed view needs no copy, say), so that a
backward reads other values. Every node then takes what any of the programs needs there, and a bundle has a place for
everything that any of them saves; a function leaves the rest unused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import fx

from .capture import Origin
from .graphs import aten, structural_hash
from .imported import Function, TensorSpec, Value
from .pieces import Program

#: What members of a bundle have in common at any number of rows: rank and element type.
_Place = tuple[int, torch.dtype]


def unify(programs: Mapping[int | None, Program], spec: Callable[[int | None, Value], TensorSpec]) -> None:
    """Widens operands and bundles of programs with the same pieces; `spec(rows, value)` describes a value in a
    program.
    """
    reference = next(iter(programs.values()))
    if any(program.structure() != reference.structure() for program in programs.values()):
        return
    places = {index: _places(index, programs.values()) for index in range(len(reference.pieces))}
    taken: list[tuple[tuple[int, int], ...]] = []
    widened: dict[int | None, list[Function]] = {rows: [] for rows in programs}
    for index in range(len(reference.pieces)):
        operands = tuple(dict.fromkeys(value for program in programs.values() for value in program.operands[index]))
        takes = tuple(
            sorted({(giver, number) for program in programs.values() for giver, number in program.takes[index]})
        )
        taken.append(takes)
        for rows, program in programs.items():
            specs = tuple(spec(rows, value) for value in operands)
            widened[rows].append(_widened(program, index, operands, specs, takes, places))
            program.operands[index] = operands
    for rows, program in programs.items():
        for piece, function in zip(program.pieces, widened[rows], strict=True):
            piece.function = function
        program.takes[:] = taken
        program.gives[:] = [tuple(map(len, places[index])) for index in range(len(places))]


def _places(index: int, programs: Iterable[Program]) -> list[list[_Place]]:
    """For each bundle that a node gives the places of everything any of the programs saves in it."""
    bundles = [_bundles(program.pieces[index].function.saved_results, program.gives[index]) for program in programs]
    return [_supersequence([[_place(s) for s in bundle] for bundle in same]) for same in zip(*bundles, strict=True)]


def _bundles(specs: Sequence[TensorSpec], sizes: Sequence[int]) -> list[Sequence[TensorSpec]]:
    rest = iter(specs)
    return [[next(rest) for _ in range(size)] for size in sizes]


def _place(spec: TensorSpec) -> _Place:
    return len(spec.shape), spec.dtype


def _supersequence(sequences: Sequence[Sequence[_Place]]) -> list[_Place]:
    """A sequence that has each of `sequences` as a subsequence; that of equal ones is the same again."""
    merged: list[_Place] = []
    for sequence in sequences:
        result, rest = [], list(merged)
        for place in sequence:
            if place in rest:
                at = rest.index(place)
                result += rest[: at + 1]
                rest = rest[at + 1 :]
            else:
                result.append(place)
        merged = result + rest
    return merged


def _positions(sequence: Sequence[_Place], places: Sequence[_Place]) -> list[int]:
    """Where each item of `sequence` has its place."""
    found, at = [], 0
    for item in sequence:
        at = places.index(item, at)
        found.append(at)
        at += 1
    return found


def _at_places(bundles: Sequence[Sequence[TensorSpec]], places: Sequence[Sequence[_Place]]) -> list[int]:
    """The positions of a function's own values among all places, one bundle behind the other."""
    found, start = [], 0
    for bundle, wide in zip(bundles, places, strict=True):
        found += [start + at for at in _positions([_place(s) for s in bundle], wide)]
        start += len(wide)
    return found


def _widened(
    program: Program,
    index: int,
    operands: Sequence[Value],
    specs: Sequence[TensorSpec],
    takes: Sequence[tuple[int, int]],
    places: Mapping[int, Sequence[Sequence[_Place]]],
) -> Function:
    piece, old = program.pieces[index], program.pieces[index].function
    # A bundle that this program does not take has no value of its own.
    sizes = [program.gives[giver][number] if (giver, number) in program.takes[index] else 0 for giver, number in takes]
    taken_places = [places[giver][number] for giver, number in takes]
    own_taken = _at_places(_bundles(old.saved_operands, sizes), taken_places)
    own_given = _at_places(_bundles(old.saved_results, program.gives[index]), places[index])
    taken = [place for wide in taken_places for place in wide]
    given = [place for wide in places[index] for place in wide]
    if program.operands[index] == tuple(operands) and len(own_taken) == len(taken) and len(own_given) == len(given):
        return old
    graph, copies = fx.Graph(), {}
    placeholders = [node for node in old.graph.nodes if node.op == "placeholder"]
    # A tied parameter or shared buffer may have gone by two names when it was traced: then two placeholders stand for it.
    known: dict[Value, list[fx.Node]] = {}
    for value, placeholder in zip(program.operands[index], placeholders, strict=False):
        known.setdefault(value, []).append(placeholder)
    kept = dict(zip(own_taken, placeholders[len(old.operands) :], strict=True))
    taken_specs = [_spec_at(at, place, own_taken, old.saved_operands) for at, place in enumerate(taken)]
    sources = [known.get(value, []) for value in operands]
    sources += [[kept[at]] if at in kept else [] for at in range(len(taken))]
    for position, (old_nodes, spec) in enumerate(zip(sources, [*specs, *taken_specs], strict=True)):
        placeholder = graph.placeholder(f"arg{position}")
        placeholder.meta = {"val": torch.empty(spec.shape, dtype=spec.dtype, device="meta")}
        for node in old_nodes:
            copies[node] = placeholder
    for node in old.graph.nodes:
        if node.op == "call_function":
            copies[node] = graph.node_copy(node, lambda n: copies[n])
            copies[node].meta = dict(node.meta)
    outputs = [copies[node] for node in old.graph.output_node().args[0]]
    results, saved = outputs[: len(old.results)], dict(zip(own_given, outputs[len(old.results) :], strict=True))
    given_specs = [_spec_at(at, place, own_given, old.saved_results) for at, place in enumerate(given)]
    for at, spec in enumerate(given_specs):
        results.append(saved[at] if at in saved else _nothing(graph, spec))
    graph.output(tuple(results))
    name = f"{piece.pass_}_{structural_hash(graph, len(taken), len(given))}"
    return Function(name, graph, tuple(specs), tuple(taken_specs), old.results, tuple(given_specs))


def _spec_at(at: int, place: _Place, own: Sequence[int], specs: Sequence[TensorSpec]) -> TensorSpec:
    """What stands at a place of a bundle: the function's own value, or one element where it has none."""
    return specs[own.index(at)] if at in own else TensorSpec((1,) * place[0], place[1])


def _nothing(graph: fx.Graph, spec: TensorSpec) -> fx.Node:
    node = graph.call_function(aten.full.default, (list(spec.shape), 0), {"dtype": spec.dtype})
    node.meta = {
        "val": torch.empty(spec.shape, dtype=spec.dtype, device="meta"),
        "origin": Origin(None, False, None, False, ""),
    }
    return node
