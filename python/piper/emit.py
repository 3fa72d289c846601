# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes an imported program as a module of the imported phase: mesh, states, optimizers, chunks, functions, graphs and the strategy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from .directives import Strategy
from .importer.constants import same_bits
from .importer.imported import Family, Imported, InputRef, Node, ResultRef, State, StateRef, TensorSpec, Value
from .mlir_text import bare_or_quoted, quoted
from .optimizers import Group

ELEMENT_TYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "i8",
    torch.bool: "i1",
}


# Names of buckets, classes of ranks, streams and update functions.
_OF_LATER_PASSES = re.compile(r"(bucket|class)\d+|compute|\w+_stream|update_.*")


@dataclass(frozen=True)
class Graph:
    """One entry point: its name, the rows of its global batch and what was imported for it."""

    name: str
    rows: int
    imported: Imported


def module_text(
    graphs: Sequence[Graph], functions: Mapping[str, str], groups: Sequence[Group], strategy: Strategy
) -> str:
    """The module as text.

    graphs: the training graph first. functions: the text of every member function by name. groups: the optimizer's.
    """
    states = states_of(graphs)
    symbols = state_symbols(graphs, functions, groups, strategy)
    families = {name: family for graph in graphs for name, family in graph.imported.families.items()}
    optimizers = {parameter: group for group in groups for parameter in group.parameters}
    lines = [strategy.mesh.to_mlir()]
    lines += [_state(state, symbols[state.name]) for state in states.values()]
    lines += [group.to_mlir() for group in groups]
    lines += [_chunk(family, graphs) for family in families.values()]
    used = {function.name for family in families.values() for function in family.members.values()}
    lines += [functions[name] for name in sorted(used)]
    lines += [_GraphWriter(graph, optimizers, symbols).text() for graph in graphs]
    lines += [strategy.to_mlir()]
    body = "\n".join(lines)
    return 'module attributes {piper.phase = "imported"} {\n' + _indent(body) + "\n}\n"


def state_symbols(
    graphs: Sequence[Graph], functions: Mapping[str, str], groups: Sequence[Group], strategy: Strategy
) -> dict[str, str]:
    """The symbol of each state: its name, unless the module or a later pass gives that to something of its own."""
    families = {name for graph in graphs for name in graph.imported.families}
    taken = {"mesh", "strategy", *functions, *map(_chunk_name, families)}
    taken |= {graph.name for graph in graphs} | {group.name for group in groups}
    # Streams, among others.
    taken |= set(re.findall(r'"([^"]*)"', strategy.to_mlir()))
    states = states_of(graphs)
    symbols: dict[str, str] = {}
    for name in states:
        symbol = name
        while symbol in taken or _OF_LATER_PASSES.fullmatch(symbol) or (symbol != name and symbol in states):
            symbol += "'"
        taken.add(symbol)
        symbols[name] = symbol
    return symbols


def states_of(graphs: Iterable[Graph]) -> dict[str, State]:
    """All states of the graphs by name, each once."""
    states: dict[str, State] = {}
    for graph in graphs:
        for name, state in graph.imported.states.items():
            states.setdefault(name, state)
    return states


def with_own_constants(imported: Imported, other: Imported, prefix: str) -> Imported:
    """`imported` with constants renamed that share a name, but not the value, with one of `other`: constants are numbered in each capture."""
    renamed = {
        name: replace(state, name=prefix + name, all_names=(prefix + name,))
        for name, state in imported.states.items()
        if state.kind == "constant" and name in other.states and not same_bits(state.value, other.states[name].value)
    }
    if any(state.name in imported.states or state.name in other.states for state in renamed.values()):
        return with_own_constants(imported, other, f"{prefix}_")
    if not renamed:
        return imported
    states = {
        renamed[name].name if name in renamed else name: renamed.get(name, state)
        for name, state in imported.states.items()
    }

    def rename(value: Value) -> Value:
        return StateRef(renamed[value.name].name) if isinstance(value, StateRef) and value.name in renamed else value

    nodes = [replace(node, operands=tuple(map(rename, node.operands))) for node in imported.nodes]
    return replace(imported, states=states, nodes=nodes)


def symbol(name: str) -> str:
    """A symbol reference."""
    return f"@{bare_or_quoted(name)}"


def tensor_type(shape: Iterable[int | None], dtype: torch.dtype) -> str:
    """A ranked tensor type; None is an extent that depends on the rows."""
    extents = "".join("?x" if extent is None else f"{extent}x" for extent in shape)
    return f"tensor<{extents}{ELEMENT_TYPES[dtype]}>"


def _chunk_name(family: str) -> str:
    # A family of one function bears its name.
    return f"chunk_{family}"


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def _state(state: State, name: str) -> str:
    names = ", ".join(quoted(own) for own in dict.fromkeys((name, *state.all_names)))
    trainable = " trainable" if state.trainable else ""
    return f"piper.state {symbol(name)} : {tensor_type(state.shape, state.dtype)} {state.kind}{trainable} [{names}]"


def _chunk(family: Family, graphs: Sequence[Graph]) -> str:
    node = next(node for graph in graphs for node in graph.imported.nodes if node.family == family.name)
    some = next(iter(family.members.values()))
    nodes = next(graph.imported.nodes for graph in graphs if node in graph.imported.nodes)
    operands = [1] * len(some.operands) + [nodes[giver].gives[number] for giver, number in node.takes]
    results = [1] * len(some.results) + [count for count in node.gives if count]
    members = ", ".join(
        f"{{binding = {{rows = {rows or 1} : i64}}, function = {symbol(function.name)}}}"
        for rows, function in family.members.items()
    )
    return f"piper.chunk {symbol(_chunk_name(family.name))} {family.pass_} operands {operands} results {results} [{members}]"


class _GraphWriter:
    """Writes one graph. Values are numbered by what they are, so that equal imports give equal text."""

    def __init__(self, graph: Graph, optimizers: Mapping[str, Group], symbols: Mapping[str, str]):
        self._symbols = symbols
        self._graph = graph
        self._imported = graph.imported
        self._optimizers = optimizers
        self._lines: list[str] = []
        self._reads = {name: f"%state{index}" for index, name in enumerate(self._imported.states)}
        self._inputs = {name: f"%input{index}" for index, name in enumerate(self._imported.inputs)}

    def text(self) -> str:
        """The `piper.graph` operation."""
        self._write_inputs()
        self._write_reads()
        for node in self._imported.nodes:
            self._write_node(node)
        self._write_updates()
        for name, value in self._imported.buffer_writes.items():
            self._lines.append(f"piper.write {symbol(self._symbols[name])}, {self._name(value)} : {self._type(value)}")
        loss = (self._imported.loss_sum, self._imported.loss_weight)
        names, types = (", ".join(map(part, loss)) for part in (self._name, self._type))
        self._lines.append(f"piper.return {names} : {types}")
        return "\n".join(
            [f"piper.graph @{self._graph.name} rows {self._graph.rows} {{", *("  " + line for line in self._lines), "}"]
        )

    def _write_inputs(self) -> None:
        used = {value.name for value in self._operands() if isinstance(value, InputRef)}
        for index, item in enumerate(self._imported.inputs.values()):
            if item.name in used:
                split = " split" if item.split else ""
                self._lines.append(
                    f"{self._inputs[item.name]} = piper.input {quoted(item.name)} {index}{split}"
                    f" : {self._type(InputRef(item.name))}"
                )

    def _write_reads(self) -> None:
        used = {value.name for value in self._operands() if isinstance(value, StateRef)}
        for name, state in self._imported.states.items():
            if name in used:
                self._lines.append(
                    f"{self._reads[name]} = piper.read {symbol(self._symbols[name])} : {tensor_type(state.shape, state.dtype)}"
                )

    def _operands(self) -> Iterable[Value]:
        return (value for node in self._imported.nodes for value in node.operands)

    def _write_node(self, node: Node) -> None:
        results = [ResultRef(node.index, index) for index in range(len(node.results))]
        bundles = [f"%saved{node.index}_{number}" for number, count in enumerate(node.gives) if count]
        names = [self._name(result) for result in results] + bundles
        types = [self._type(result) for result in results] + ["!piper.bundle"] * len(bundles)
        operands = [self._name(value) for value in node.operands]
        operand_types = [self._type(value) for value in node.operands]
        operands += [f"%saved{giver}_{number}" for giver, number in node.takes]
        operand_types += ["!piper.bundle"] * len(node.takes)
        tags = ", ".join(f"{bare_or_quoted(name)} = {index} : i64" for name, index in sorted(node.tags.items()))
        self._lines.append(
            f"{', '.join([*names, f'%token{node.index}'])} = piper.compute {symbol(_chunk_name(node.family))}({', '.join(operands)})"
            f" {node.pass_} {{{tags}}} : ({', '.join(operand_types)}) -> ({', '.join(types)}) loc({quoted(node.label)})"
        )

    def _write_updates(self) -> None:
        for number, (name, contributions) in enumerate(self._imported.gradients.items()):
            if not contributions:
                continue
            state = self._imported.states[name]
            kind = tensor_type(state.shape, state.dtype)
            values = ", ".join(self._name(value) for value in contributions)
            self._lines.append(
                f"%gradient{number}, %accumulated{number} = piper.accumulate {symbol(self._symbols[name])} ({values})"
                f" : {', '.join([kind] * len(contributions))} -> {kind}"
            )
            self._lines.append(
                f"%updated{number} = piper.update {symbol(self._symbols[name])} (%gradient{number})"
                f" optimizer @{self._optimizers[name].name} : {kind}"
            )

    def _name(self, value: Value) -> str:
        if isinstance(value, InputRef):
            return self._inputs[value.name]
        if isinstance(value, StateRef):
            return self._reads[value.name]
        return f"%node{value.node}_{value.result}"

    def _type(self, value: Value) -> str:
        if isinstance(value, InputRef):
            item = self._imported.inputs[value.name]
            return tensor_type((None, *item.shape[1:]) if item.split else item.shape, item.dtype)
        if isinstance(value, StateRef):
            state = self._imported.states[value.name]
            return tensor_type(state.shape, state.dtype)
        node = self._imported.nodes[value.node]
        members = self._imported.families[node.family].members
        specs = {rows: function.results[value.result] for rows, function in members.items()}
        if node.results[value.result].kind == "activation":
            return _merged_type(specs)
        some = next(iter(specs.values()))
        return tensor_type(some.shape, some.dtype)


def _merged_type(specs: Mapping[int, TensorSpec]) -> str:
    """The type that agrees with a value of every member: extents that differ are open, and so is a first extent that is the number of rows."""
    some = next(iter(specs.values()))
    extents: list[int | None] = []
    for axis, extent in enumerate(some.shape):
        fixed = all(spec.shape[axis] == extent for spec in specs.values())
        is_rows = axis == 0 and all(spec.shape[0] == rows for rows, spec in specs.items())
        extents.append(extent if fixed and not is_rows else None)
    return tensor_type(extents, some.dtype)
