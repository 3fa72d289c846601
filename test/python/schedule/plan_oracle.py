# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says what a plan computes, under many interleavings: plan_oracle.cpp executes it with hashes in place of numbers. Shares no code with the compiler."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

from planned_text import COLLECTIVES, Action, Address, Entry, Plan

OPCODES = [
    *("launch", "copy", "fill_zero", "accumulate", "record", "wait", "send", "recv", "release"),
    *COLLECTIVES,
]
WORD = 4


def build(folder: Path) -> Path:
    """The program that executes plans."""
    source = Path(__file__).with_name("plan_oracle.cpp")
    program = folder / "plan_oracle"
    subprocess.run(["g++", "-std=c++17", "-O2", "-Wall", str(source), "-o", str(program)], check=True)
    return program


class Machine:
    """Turns a plan into numbers: every rank's actions, with addresses in words of its own memory."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.groups: dict[tuple[str, int], int] = {}

    def describe(self, entries: list[Entry]) -> str:
        """What plan_oracle.cpp reads."""
        bodies = [self._rank(rank, entry) for entry in entries for rank in entry.ranks]
        groups = []
        for name, number in self.groups:
            members = self.plan.groups[name][number]
            groups.append(f"{len(members)} {' '.join(map(str, members))}")
        return "\n".join([f"{len(groups)} {len(bodies)}", *groups, *bodies])

    def _rank(self, rank: int, entry: Entry) -> str:
        streams = {name: i for i, name in enumerate(sorted({action.stream for action in entry.actions}))}
        sizes = [self.plan.sizes[rank, space] // WORD for space in ("arena", "state", "scalar")]
        lines = [f"{rank} {' '.join(map(str, sizes))} {len(streams)} {len(entry.actions)}"]
        # Streams one by one: how they stand between each other means nothing.
        for name, number in streams.items():
            lines += [self._action(rank, action, number) for action in entry.actions if action.stream == name]
        return "\n".join(lines)

    def _words(self, rank: int, address: Address) -> str:
        """Space and first word; inputs are spaces of their own."""
        offset = address.offset
        if address.communicator:
            offset += self.plan.position(address.communicator, rank)[0] * address.stride
        assert offset % WORD == 0
        kinds = ("arena", "state", "scalar", "workspace")
        space = kinds.index(address.space) if address.space in kinds else 4 + int(address.space.split()[1])
        return f"{space} {offset // WORD}"

    def _action(self, rank: int, action: Action, stream: int) -> str:
        when = 0
        if action.when:
            number = self._flag(action.when.removeprefix("!"))
            when = -number if action.when.startswith("!") else number
        numbers: list[int] = []
        operands: list[tuple[Address, int, str]] = []
        match action.opcode:
            case "launch":
                name = action.find(r'piper\.plan\.launch "(\w+)"')
                sizes, access = self.plan.kernels[name]
                numbers = [zlib.crc32(name.encode())]
                operands = list(zip(action.addresses, sizes, access, strict=True))
            case "copy" | "fill_zero":
                operands = [(address, action.bytes, "-") for address in action.addresses]
            case "accumulate":
                mode = action.find(r'piper\.plan\.accumulate "(\w+)"')
                numbers = [{"add": 0, "write": -1}[mode] if mode in ("add", "write") else self._flag(mode)]
                operands = [(address, action.bytes, "-") for address in action.addresses]
            case "record" | "wait":
                numbers = [action.event]
            case "release":
                numbers = [self._group(action.communicator, rank)[0], int(action.find(r"release (\d+)"))]
            case _:
                numbers = list(self._group(action.communicator, rank))
                operands = [(address, action.bytes, "-") for address in action.addresses]
        texts = [f"{self._words(rank, address)} {size // WORD} {letter}" for address, size, letter in operands]
        head = [OPCODES.index(action.opcode), stream, when, len(numbers), *numbers, len(operands)]
        return " ".join([*map(str, head), *texts])

    def _flag(self, name: str) -> int:
        return 1 + self.plan.flags.index(name)

    def _group(self, communicator: str, rank: int) -> tuple[int, int]:
        """Number of the group among all communicators' groups, and the rank's position."""
        position, number = self.plan.position(communicator, rank)
        return self.groups.setdefault((communicator, number), len(self.groups)), position


class Oracle:
    """Executes mutants of one plan and compares with the plan itself."""

    def __init__(self, program: Path, plan: Plan, interleavings: int):
        self.machine = Machine(plan)
        self.interleavings = interleavings
        self.original = self.machine.describe(plan.entries)
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self._ask(plan.entries, interleavings, "0 0 0 0")
        assert answer.startswith("sound "), f"the plan itself: {answer}"
        self.expected = answer.removeprefix("sound ")

    def _ask(self, entries: list[Entry], interleavings: int, digests: str) -> str:
        self.process.stdin.write(f"{interleavings} {digests}\n{self.machine.describe(entries)}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, "the oracle ended"
        return answer

    def is_unchanged(self, entries: list[Entry]) -> bool:
        """Whether the ranks do the same as in the plan, whatever the text says about it."""
        return self.machine.describe(entries) == self.original

    def find_fault(self, entries: list[Entry]) -> str:
        """What goes wrong, or nothing if each interleaving ends as the plan does."""
        answer = self._ask(entries, self.interleavings, self.expected)
        return "" if answer.startswith("sound ") else answer

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=20)
