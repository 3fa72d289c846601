# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a machine takes, recorded from runs of a program: costs for this program and for others."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from . import _runtime
from .errors import UsageError
from .files import path_of, write_whole
from .rehearsal import DelayDevice, numbers

if TYPE_CHECKING:
    from .execution import Span

_BACKWARD = "BIW"
_IN_MEMORY = ("copy", "fill_zero", "accumulate")


@dataclass
class MachineProfile:
    """Costs of kernels by name, and what stands in for kernels that were not recorded; all fields are JSON.

    Attributes:
        kernels: seconds of each recorded kernel.
        rates: seconds per unit of estimated work, by the pass that a kernel's name begins with ("F", "B", "update", …): of recorded kernels, for others.
        links: by pattern of a communicator's name, latency in seconds and bandwidth in bytes per second.
        memory_bandwidth: bytes per second of copies, zero fills and accumulations; None: they take no time.
    """

    kernels: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    links: dict[str, dict[str, float]] = field(default_factory=dict)
    memory_bandwidth: float | None = None

    def save(self, path: str | os.PathLike) -> None:
        """Writes it as JSON."""
        try:
            write_whole(path_of(path), json.dumps(asdict(self), indent=1) + "\n")
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | os.PathLike) -> MachineProfile:
        """Reads what `save` wrote. Raises UsageError for anything else."""
        file = path_of(path)
        try:
            given = json.loads(file.read_text())
            if not isinstance(given, dict) or not set(given) <= set(cls.__dataclass_fields__):
                raise ValueError(f"expected the fields {', '.join(cls.__dataclass_fields__)}")
            profile = cls(**given)
            profile._check()
            return profile
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        except RecursionError:
            raise UsageError(f"{path}: expected a profile, got JSON of too many levels") from None
        except (UsageError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from None

    def costs(self, work: Mapping[str, float]) -> DelayDevice:
        """Costs for a program whose kernels do that much work, by name.

        Raises UsageError where a kernel was not recorded and none of its pass was, so that nothing tells what it takes.
        """
        self._check()
        kernels = {}
        for name, amount in work.items():
            if name in self.kernels:
                kernels[name] = self.kernels[name]
                continue
            rate = next((self.rates[kind] for kind in _kin(name) if kind in self.rates), None)
            if rate is None:
                raise UsageError(f"kernel '{name}': neither it nor another {_kind(name)} was recorded")
            kernels[name] = rate * amount
        return DelayDevice(kernels, self.links, self.memory_bandwidth)

    def _check(self) -> None:
        DelayDevice(self.kernels, self.links, self.memory_bandwidth).costs()
        numbers("rates", self.rates)


def record(plan: bytes, work: Mapping[str, float], traces: Iterable[list[Span]], entry: str = "step") -> MachineProfile:
    """The costs that traces of runs of a plan show: medians over ranks, microbatches and runs.

    work: estimated work by kernel name.
    """
    parsed = _runtime.Plan.parse(plan)
    flags = parsed.describe()["flags"]
    free = DelayDevice({}).costs()
    items = _runtime.simulate(parsed, free, entry, (1 << len(flags)) - 1)["actions"]
    # What goes by one name on one stream does so in the order of the plan.
    planned: dict[tuple, list[tuple[str, int]]] = {}
    for rank, stream, _, _, opcode, label, kernel, size, *_ in items:
        planned.setdefault((rank, stream, opcode, label or opcode), []).append((kernel, size))
    durations: dict[str, list[float]] = {}
    passed: list[tuple[int, float]] = []
    moved = [0.0, 0.0]
    for trace in traces:
        rest = {key: iter(found) for key, found in planned.items()}
        for span in sorted(trace, key=lambda span: span.start):
            took = span.end - span.start - span.waited
            kernel, size = next(rest[span.rank, span.stream, span.opcode, span.label])
            if kernel:
                durations.setdefault(kernel, []).append(took)
            if size and span.opcode in _IN_MEMORY:
                moved[0] += size
                moved[1] += took
            elif size:
                passed.append((size, took))
    kernels = {name: statistics.median(values) for name, values in sorted(durations.items())}
    spent: dict[str, list[float]] = {}
    for name, seconds in kernels.items():
        if work.get(name):
            total = spent.setdefault(_kind(name), [0.0, 0.0])
            total[0] += seconds
            total[1] += work[name]
    rates = {kind: seconds / amount for kind, (seconds, amount) in spent.items()}
    links = {"*": _fit(passed)} if passed else {}
    return MachineProfile(kernels, rates, links, moved[0] / moved[1] if moved[1] > 0 else None)


def _fit(passed: list[tuple[int, float]]) -> dict[str, float]:
    """Latency and, where larger messages take longer, bandwidth: by least squares over the medians of each size."""
    by_size: dict[int, list[float]] = {}
    for size, seconds in passed:
        by_size.setdefault(size, []).append(seconds)
    points = [(size, statistics.median(values)) for size, values in by_size.items()]
    slope, latency = statistics.linear_regression(*zip(*points, strict=True)) if len(points) > 1 else (0.0, 0.0)
    if slope <= 0:
        return {"latency": statistics.fmean(seconds for _, seconds in points)}
    return {"latency": max(latency, 0.0), "bandwidth": 1 / slope}


def _kind(name: str) -> str:
    return name.partition("_")[0]


def _kin(name: str) -> list[str]:
    """The pass of a kernel, and those that compute much the same."""
    kind = _kind(name)
    return [kind, *_BACKWARD, "F"] if kind in _BACKWARD else [kind, *_BACKWARD] if kind == "F" else [kind]
