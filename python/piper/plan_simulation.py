# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When a program's plan does what at stated costs, computed at once for all ranks: makespan, bubbles, exposed communication, memory, critical path."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from . import _runtime
from .errors import ProgramError, UsageError, short
from .execution import Span
from .files import path_of, write_whole
from .rehearsal import DelayDevice

#: Flags of a training step with update.
STEP = ("fresh", "reduce", "update", "buffers")
_COMMUNICATION = {"send", "recv", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"}
_WIDTH = 100


@dataclass(frozen=True)
class RankSummary:
    """What one rank does, in seconds and bytes.

    Attributes:
        first_start, last_end: of its kernels.
        busy: time in which a kernel runs.
        bubble: time between the first and the last kernel in which none runs.
        communication: time in which messages or collectives pass, without waiting for others.
        exposed: the part of it in which no kernel runs.
        peak_bytes: of the planned memory of its buffers; state_bytes: of what outlives a step.
        memory: bytes by kind of buffer where all together are most.
    """

    rank: int
    first_start: float
    last_end: float
    busy: float
    bubble: float
    communication: float
    exposed: float
    peak_bytes: int
    state_bytes: int
    memory: dict[str, int]


class Simulation:
    """The result of `program.simulate` or `piper.simulate`.

    Attributes:
        makespan: seconds from the entry's beginning until the last rank is done and every message is received.
        ranks: one RankSummary per rank.
        spans: every action as in a trace of a run: rank, stream, kind, label, start, end, waited, in seconds.
        critical_path: the spans of a chain without a gap from the beginning to the span that ends last.
    """

    def __init__(self, plan: bytes, costs: DelayDevice, entry: str = "step", flags: Iterable[str] = STEP):
        if not isinstance(costs, DelayDevice):
            raise UsageError(f"expected costs in a piper.DelayDevice or a piper.MachineProfile, got {short(costs)}")
        try:
            parsed = _runtime.Plan.parse(plan)
        except ValueError as error:
            raise ProgramError(str(error)) from None
        info = parsed.describe()
        bits = sum(1 << number for number, name in enumerate(info["flags"]) if name in set(flags))
        try:
            found = _runtime.simulate(parsed, costs.costs(), entry, bits)
        except RuntimeError as error:
            raise UsageError(str(error)) from None
        self.makespan: float = found["duration"]
        self.spans = [
            Span(rank, stream, label or opcode, opcode, start, end, waited, where)
            for rank, stream, _, _, opcode, label, _, _, start, end, waited, where in found["actions"]
        ]
        self._times = {(item[0], item[2], item[3]): (item[8], item[9]) for item in found["actions"]}
        self._buffers = {rank: item["buffers"] for item in info["classes"] for rank in item["ranks"]}
        self._entry = entry
        self._by_rank: dict[int, list[Span]] = {}
        for span in self.spans:
            self._by_rank.setdefault(span.rank, []).append(span)
        self.critical_path = [self.spans[index] for index in found["critical_path"]]
        self.ranks = [_summary(rank, item, self.spans_of(rank)) for item in info["classes"] for rank in item["ranks"]]
        self.ranks.sort(key=lambda item: item.rank)

    @property
    def bubble(self) -> float:
        """Seconds: the largest of the ranks'."""
        return max(item.bubble for item in self.ranks)

    @property
    def peak_bytes(self) -> int:
        """The largest of the ranks', state included."""
        return max(item.peak_bytes + item.state_bytes for item in self.ranks)

    def spans_of(self, rank: int) -> list[Span]:
        """What one rank does."""
        return self._by_rank.get(rank, [])

    def memory(self, rank: int) -> list[tuple[float, dict[str, int]]]:
        """Live bytes of a rank's buffers by kind over time: (seconds, bytes from then on), in order.

        A buffer lives from the start of its first action to the end of its last, by the plan's lifetimes; lifetimes are those of a training step.
        """
        if self._entry != "step":
            raise UsageError(f"expected the entry 'step', whose buffers have lifetimes, got '{self._entry}'")
        lives = []
        for _, kind, _, size, _, _, first_stream, first, last_stream, last in self._buffers[rank]:
            begin, end = self._times.get((rank, first_stream, first)), self._times.get((rank, last_stream, last))
            # What the flags of the run skip is not there.
            if begin is not None and end is not None:
                lives.append((kind, size, begin[0], end[1]))
        return list(_live(lives))

    def to_json(self) -> dict:
        """Everything but the spans, as plain data."""
        path = [[span.rank, span.stream, span.label, span.start, span.end] for span in self.critical_path]
        return {
            "makespan": self.makespan,
            "bubble": self.bubble,
            "peak_bytes": self.peak_bytes,
            "ranks": [asdict(item) for item in self.ranks],
            "critical_path": path,
        }

    def save(self, path: str | os.PathLike) -> None:
        """Writes a picture (.svg, .png or .pdf: one row per stream of each rank), or `to_json` (.json)."""
        file = path_of(path)
        if file.suffix not in (".json", ".svg", ".png", ".pdf"):
            raise UsageError(f"{file}: expected a file named .svg, .png, .pdf or .json")
        try:
            if file.suffix == ".json":
                write_whole(file, json.dumps(self.to_json(), indent=1) + "\n")
                return
            from .view.timeline import draw

            curves = {item.rank: self.memory(item.rank) for item in self.ranks} if self._entry == "step" else {}
            draw(file, self.spans, f"{self.makespan * 1e3:.4g} ms", curves)
        except OSError as error:
            raise UsageError(f"{file}: cannot be written: {error.strerror}") from None

    def timeline(self, width: int = _WIDTH) -> str:
        """One line per rank over time: the microbatch of the kernel that runs, in lower case letters beyond 9; a dot where none does."""
        lines = []
        for item in self.ranks:
            cells = ["."] * width
            for span in self.spans_of(item.rank):
                if span.opcode != "launch" or span.end == span.start:
                    continue
                first = int(span.start / self.makespan * width)
                for at in range(first, max(first + 1, round(span.end / self.makespan * width))):
                    if at < width:
                        cells[at] = _letter(span.label)
            lines.append(f"rank {item.rank:3d} |{''.join(cells)}|")
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [
            f"makespan {_seconds(self.makespan)}, bubble {_seconds(self.bubble)}, peak memory {_mib(self.peak_bytes)} MiB",
            "rank      busy    bubble  exposed communication  buffers MiB  state MiB",
        ]
        for item in self.ranks:
            lines.append(
                f"{item.rank:4d} {_seconds(item.busy):>9} {_seconds(item.bubble):>9} {_seconds(item.exposed):>22}"
                f" {_mib(item.peak_bytes):>12} {_mib(item.state_bytes):>10}"
            )
        return "\n".join(lines)


def simulate(path: str | os.PathLike, costs: DelayDevice, entry: str = "step") -> Simulation:
    """What the plan of a program folder does when, at stated costs.

    Raises ProgramError if a file is missing or damaged, UsageError for costs that make no sense.
    """
    from . import saved

    return Simulation(saved.read(path).plan, costs, entry)


def _summary(rank: int, item: dict, spans: list[Span]) -> RankSummary:
    kernels = _union([(s.start, s.end) for s in spans if s.opcode == "launch"])
    passing = _union([(s.start + s.waited, s.end) for s in spans if s.opcode in _COMMUNICATION])
    busy, communication = _length(kernels), _length(passing)
    both = busy + communication - _length(_union([*kernels, *passing]))
    start, end = (kernels[0][0], kernels[-1][1]) if kernels else (0.0, 0.0)
    return RankSummary(
        rank,
        start,
        end,
        busy,
        end - start - busy,
        communication,
        communication - both,
        item["peak_bytes"],
        item["state_bytes"],
        _memory(item["buffers"]),
    )


def _memory(buffers: list[tuple]) -> dict[str, int]:
    """Bytes by kind at the action at which all together are most; lifetimes are those of the plan."""
    lives = [(kind, size, first, last + 1) for _, kind, _, size, first, last, *_ in buffers]
    return max((live for _, live in _live(lives)), key=lambda live: sum(live.values()), default={})


def _live(lives: Iterable[tuple[str, int, float, float]]) -> Iterator[tuple[float, dict[str, int]]]:
    """Bytes by kind from each moment on at which they change, of (kind, bytes, begin, end)."""
    changes: dict[float, list[tuple[str, int]]] = {}
    for kind, size, begin, end in lives:
        changes.setdefault(begin, []).append((kind, size))
        changes.setdefault(end, []).append((kind, -size))
    live: dict[str, int] = {}
    for moment in sorted(changes):
        for kind, size in changes[moment]:
            live[kind] = live.get(kind, 0) + size
        yield moment, {kind: size for kind, size in live.items() if size}


def _union(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


def _letter(label: str) -> str:
    for part in label.split():
        name, _, number = part.partition("=")
        if name == "MB" and number.isdigit():
            index = int(number)
            return "0123456789abcdefghijklmnopqrstuvwxyz"[index] if index < 36 else "+"
    return "#"


def _seconds(value: float) -> str:
    return f"{value:.4g} s" if value >= 1 else f"{value * 1e3:.4g} ms"


def _mib(value: int) -> str:
    return f"{value / 2**20:.1f}"
