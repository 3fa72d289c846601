# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a planned module as data: what its actions do with which bytes. Reads what the text says and nothing else of the product."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

ADDRESS = re.compile(r"(arena|state|scalar|workspace|input \d+)\[(\d+)(?: \+ @([\w.]+) \* (\d+))?\]")
ACTION = re.compile(
    r"\s+piper\.plan\.(launch|copy|fill_zero|accumulate|record|wait|send|recv|release"
    r"|all_reduce|reduce_scatter|all_gather|broadcast|all_to_all) "
)
BUFFER = re.compile(r'(\s+piper\.plan\.buffer \d+ ".*" kind "\w+" bytes (\d+)) at (\d+) live (\d+) to (\d+)(.*)')
WIDTHS = {"f64": 8, "i64": 8, "f32": 4, "i32": 4}
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


@dataclass(frozen=True)
class Address:
    space: str
    offset: int
    communicator: str | None = None
    stride: int = 0
    # Of an address in the arena: the index of its buffer in the entry.
    buffer: int | None = None

    def __str__(self) -> str:
        position = f" + @{self.communicator} * {self.stride}" if self.communicator else ""
        return f"{self.space}[{self.offset}{position}]"


@dataclass(frozen=True)
class Action:
    opcode: str
    # The text around the addresses.
    texts: tuple[str, ...]
    addresses: tuple[Address, ...]
    stream: str
    when: str | None

    def __str__(self) -> str:
        middle = "".join(f"{address}{text}" for address, text in zip(self.addresses, self.texts[1:], strict=True))
        return self.texts[0] + middle

    def find(self, pattern: str) -> str:
        found = re.search(pattern, str(self))
        return found.group(1) if found else ""

    @property
    def communicator(self) -> str:
        """Of a message or a collective."""
        return self.find(r" (?:through|over|of) @([\w.]+)")

    @property
    def event(self) -> int:
        return int(self.find(r"piper\.plan\.(?:record|wait) (\d+)"))

    @property
    def position(self) -> str:
        return self.find(r" position (\d+)")

    @property
    def elements(self) -> tuple[str, int]:
        return self.find(r" : (\w+) count"), int(self.find(r" count (\d+)"))

    @property
    def bytes(self) -> int:
        """That a message, a copy or a fill moves, or that a member gives or keeps."""
        if moved := self.find(r" bytes (\d+)"):
            return int(moved)
        kind, count = self.elements
        return WIDTHS[kind] * count


@dataclass(frozen=True)
class Buffer:
    head: str
    bytes: int
    offset: int
    first: int
    last: int
    tail: str

    def __str__(self) -> str:
        return f"{self.head} at {self.offset} live {self.first} to {self.last}{self.tail}"


@dataclass(frozen=True)
class Entry:
    """What one class of ranks does in a step."""

    ranks: tuple[int, ...]
    arena: int
    # Lines of the module that this takes the place of.
    begin: int
    end: int
    buffers: tuple[Buffer, ...]
    actions: tuple[Action, ...]

    def with_actions(self, actions) -> Entry:
        return replace(self, actions=tuple(actions))

    def with_lifetimes(self) -> Entry:
        """Buffers live from the first action that names them to the last."""
        uses: dict[int, list[int]] = {}
        for i, action in enumerate(self.actions):
            for address in action.addresses:
                if address.buffer is not None:
                    uses.setdefault(address.buffer, []).append(i)
        return replace(
            self,
            buffers=tuple(
                replace(buffer, first=uses[i][0], last=uses[i][-1]) if i in uses else buffer
                for i, buffer in enumerate(self.buffers)
            ),
        )

    def lines(self) -> list[str]:
        return [*map(str, self.buffers), *map(str, self.actions)]


def _read_action(line: str, opcode: str, live: list[tuple[int, Buffer]]) -> Action:
    head = line.split(" label ")[0]
    texts, addresses, at = [], [], 0
    for found in ADDRESS.finditer(head):
        space, offset, communicator, stride = found.groups()
        owner = [i for i, b in live if space == "arena" and b.offset <= int(offset) < b.offset + b.bytes]
        assert len(owner) == (space == "arena"), line
        addresses.append(Address(space, int(offset), communicator, int(stride or 0), owner[0] if owner else None))
        texts.append(line[at : found.start()])
        at = found.end()
    when = re.search(r' when "(!?\w+)"', head)
    stream = re.search(r" on @([\w.]+)", head).group(1)
    return Action(opcode, (*texts, line[at:]), tuple(addresses), stream, when.group(1) if when else None)


class Plan:
    """A planned module; `entries` are the classes' parts in the entry "step"."""

    def __init__(self, text: str):
        self.lines = text.split("\n")
        self.flags: list[str] = []
        self.groups: dict[str, list[list[int]]] = {}
        self.kernels: dict[str, tuple[list[int], str]] = {}
        self.sizes: dict[tuple[int, str], int] = {}
        self.entries: list[Entry] = []
        ranks: list[int] = []
        for number, line in enumerate(self.lines):
            if found := re.search(r"piper\.flags = \[(.*?)\]", line):
                self.flags = re.findall(r'"(\w+)"', found.group(1))
            elif found := re.match(r"  piper\.plan\.communicator @([\w.]+) \[(.*)\]", line):
                groups = re.findall(r"\[([\d, ]+)\]", found.group(2))
                self.groups[found.group(1)] = [[int(rank) for rank in group.split(",")] for group in groups]
            elif found := re.match(r'  piper\.plan\.kernel "(\w+)" \[([\d, ]*)\] "(\w*)"', line):
                self.kernels[found.group(1)] = ([int(b) for b in found.group(2).split(",") if b], found.group(3))
            elif found := re.match(
                r"  piper\.plan @\w+ ranks \[([\d, ]+)\] arena (\d+) state (\d+) scalar (\d+)", line
            ):
                ranks = [int(rank) for rank in found.group(1).split(",")]
                for rank in ranks:
                    for space, size in zip(("arena", "state", "scalar"), found.groups()[1:], strict=True):
                        self.sizes[rank, space] = int(size)
            elif re.match(r'    piper\.plan\.entry "step"', line):
                self.entries.append(self._read_entry(ranks, number + 1))

    def _read_entry(self, ranks: list[int], begin: int) -> Entry:
        buffers, actions, at = [], [], begin
        while self.lines[at].strip() != "}":
            line = self.lines[at]
            at += 1
            if found := BUFFER.match(line):
                head, size, *numbers, tail = found.groups()
                buffers.append(Buffer(head, int(size), *map(int, numbers), tail))
                continue
            opcode = ACTION.match(line).group(1)
            now = len(actions)
            live = [(i, b) for i, b in enumerate(buffers) if b.first <= now <= b.last]
            actions.append(_read_action(line, opcode, live))
        return Entry(tuple(ranks), self.sizes[ranks[0], "arena"], begin, at, tuple(buffers), tuple(actions))

    def text(self, entries: list[Entry]) -> str:
        """The module with these in the place of its own."""
        result, at = [], 0
        for entry in entries:
            result += self.lines[at : entry.begin] + entry.lines()
            at = entry.end
        return "\n".join(result + self.lines[at:])

    def position(self, communicator: str, rank: int) -> tuple[int, int]:
        """Of a rank in its group, and the group's number."""
        for number, group in enumerate(self.groups[communicator]):
            if rank in group:
                return group.index(rank), number
        raise ValueError(f"rank {rank} is not in @{communicator}")
