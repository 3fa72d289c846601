# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans by hand, for tests of the runtime: an independent writer of the binary format that runtime/plan/Serialization.cpp describes."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass, field

DTYPES = ["f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "i1"]
SPACES = ["arena", "state", "input", "scalar", "workspace"]
OPCODES = [
    *["launch", "copy", "fill_zero", "accumulate", "record", "wait", "send", "recv", "release"],
    *["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"],
]
KINDS = ["parameter", "buffer", "moment", "gradient", "constant"]
ADD, WRITE = 2**64 - 1, 2**64 - 2


def address(space: str, offset: int = 0, index: int = 0, communicator: int = -1, stride: int = 0) -> tuple:
    return (SPACES.index(space), index, offset, communicator, stride)


@dataclass
class Action:
    opcode: str
    addresses: list[tuple] = field(default_factory=list)
    imm: list[int] = field(default_factory=list)
    label: str = ""
    predicate: int = 0


def when_set(flag: int) -> int:
    return 1 + flag


def when_clear(flag: int) -> int:
    return (1 + flag) | (1 << 31)


def collective(opcode: str, communicator: int, src: tuple, dst: tuple, count: int, dtype: str = "f32", label: str = ""):
    return Action(opcode, [src, dst], [communicator, DTYPES.index(dtype), count, 0, 0], label)


@dataclass
class RankClass:
    ranks: list[int]
    entries: dict[str, list[list[Action]]]
    streams: list[str]
    arena: int = 4096
    state: int = 4096
    scalar: int = 64
    events: int = 0
    workspace: int = 0


@dataclass
class Plan:
    world_size: int
    classes: list[RankClass]
    flags: list[str] = field(default_factory=list)
    kernels: list[tuple[str, int, list[int]]] = field(default_factory=list)
    communicators: list[tuple[str, list[list[int]]]] = field(default_factory=list)
    # name, kind, dtype, shape, [(class, space, byte offset, element offset, count, communicator, element stride)]
    states: list[tuple] = field(default_factory=list)
    inputs: list[tuple[str, str, int, int]] = field(default_factory=list)
    scalars: list[tuple[str, str, int]] = field(default_factory=list)
    # name, dtype, class, address, shape
    outputs: list[tuple] = field(default_factory=list)

    def encode(self) -> bytes:
        payload = _Writer().plan(self)
        total = 0xCBF29CE484222325
        for byte in payload:
            total = ((total ^ byte) * 0x100000001B3) % 2**64
        return b"PIPRPLAN" + struct.pack("<IIQQ", 2, 0, len(payload), total) + payload


class _Writer:
    def __init__(self):
        self.strings: dict[str, int] = {}
        self.body = bytearray()

    def pack(self, format: str, *values) -> None:
        self.body += struct.pack("<" + format, *values)

    def string(self, text: str) -> None:
        self.pack("I", self.strings.setdefault(text, len(self.strings)))

    def sequence(self, values, each) -> None:
        self.pack("Q", len(values))
        for value in values:
            each(value)

    def integers(self, values, format: str) -> None:
        self.sequence(values, lambda value: self.pack(format, value))

    def address(self, value: tuple) -> None:
        self.pack("BIQiQ", *value)

    def action(self, action: Action) -> None:
        self.pack("BI", OPCODES.index(action.opcode), action.predicate)
        self.sequence(action.addresses, self.address)
        self.integers(action.imm, "Q")
        self.string(action.label)
        self.string("")

    def rank_class(self, item: RankClass) -> None:
        self.integers(item.ranks, "I")
        self.pack("QQQQI", item.arena, item.state, item.scalar, item.arena, item.events)
        self.sequence(item.streams, lambda name: (self.string(name), self.pack("QI", item.workspace, 0)))
        self.pack("Q", len(item.entries))
        for name in sorted(item.entries):
            self.string(name)
            self.sequence(item.entries[name], lambda actions: self.sequence(actions, self.action))
        self.pack("Q", 0)

    def state(self, item: tuple) -> None:
        name, kind, dtype, shape, segments = item
        self.string(name)
        self.pack("BB", KINDS.index(kind), DTYPES.index(dtype))
        self.integers(shape, "Q")
        self.sequence(segments, self.segment)

    def segment(self, item: tuple) -> None:
        rank_class, space, byte_offset, element_offset, count, communicator, stride = item
        self.pack(
            "IBQqQiQQQ", rank_class, SPACES.index(space), byte_offset, element_offset, count, communicator, stride, 1, 0
        )

    def plan(self, plan: Plan) -> bytes:
        self.pack("I", plan.world_size)
        self.sequence(plan.flags, self.string)
        self.sequence(plan.kernels, lambda k: (self.string(k[0]), self.pack("Q", k[1]), self.integers(k[2], "Q")))
        self.sequence(
            plan.communicators,
            lambda c: (self.string(c[0]), self.sequence(c[1], lambda group: self.integers(group, "I"))),
        )
        self.sequence(plan.classes, self.rank_class)
        self.sequence(plan.states, self.state)
        self.sequence(plan.inputs, lambda i: (self.string(i[0]), self.pack("BQQ", DTYPES.index(i[1]), i[2], i[3])))
        self.sequence(plan.scalars, lambda s: (self.string(s[0]), self.pack("BQ", DTYPES.index(s[1]), s[2])))
        self.sequence(plan.outputs, self.output)
        table = bytearray(struct.pack("<I", len(self.strings)))
        for text in self.strings:
            table += struct.pack("<I", len(text.encode())) + text.encode()
        return bytes(table + self.body)

    def output(self, item: tuple) -> None:
        name, dtype, rank_class, where, shape = item
        self.string(name)
        self.pack("BI", DTYPES.index(dtype), rank_class)
        self.address(where)
        self.integers(shape, "Q")


def compile_kernels(source: str, folder) -> bytes:
    """The object file of C++ functions `extern "C" void name(void *const *args)`."""
    (folder / "kernels.cpp").write_text(source)
    options = ["-O2", "-fPIC", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fno-stack-protector"]
    command = ["g++", "-std=c++17", *options, "-c", str(folder / "kernels.cpp"), "-o", str(folder / "kernels.o")]
    subprocess.run(command, check=True)
    return (folder / "kernels.o").read_bytes()
