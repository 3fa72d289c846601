# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipeline schedules as data: which forward and backward each rank runs, in order; proved and simulated before anything runs.

The compiler's library computes them: the module `_schedule`, which loads neither the compiler nor torch.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence

from .errors import UsageError
from .files import path_of, write_whole
from .simulation import Simulation, run

# (stage, microbatch, pass)
Action = tuple[int, int, str]
# Actions that may run at the same time; usually one.
Cell = tuple[Action, ...]

_PASSES = ("F", "B", "I", "W")


class Schedule:
    """What every rank of a pipeline computes, in order. Build one with `build`, or `load` it from a CSV file."""

    def __init__(self, table, name: str) -> None:
        self._table = table
        #: The schedule's name, or the file that it was read from.
        self.name = name

    @property
    def stages(self) -> int:
        return self._table.stages

    @property
    def microbatches(self) -> int:
        return self._table.microbatches

    @property
    def ranks(self) -> int:
        return self._table.ranks

    def rows(self) -> list[list[Cell]]:
        """One list per rank: its cells in order, without blanks and communication."""
        rows = []
        for row in self._table.cells():
            cells = (tuple((s, m, kind) for s, kind, m in cell if kind in _PASSES) for cell in row)
            rows.append([cell for cell in cells if cell])
        return rows

    def actions(self) -> list[list[Action]]:
        """`rows` with the actions of each cell one after the other."""
        return [[action for cell in row for action in cell] for row in self.rows()]

    def placement(self) -> dict[int, dict[int, int]]:
        """The rank that runs each microbatch of each stage: {stage: {microbatch: rank}}."""
        result: dict[int, dict[int, int]] = {stage: {} for stage in range(self.stages)}
        for rank, actions in enumerate(self.actions()):
            for stage, microbatch, _ in actions:
                result[stage][microbatch] = rank
        return {stage: dict(sorted(ranks.items())) for stage, ranks in result.items()}

    def prove(self) -> None:
        """Raises UsageError, with the grid and an arrow, if something is missing or twice or ranks would wait for ever."""
        if (problem := self._table.prove()) is not None:
            raise UsageError(f"{self.name}: {problem}")

    def simulate(
        self,
        costs: Mapping[str, float] | Sequence[Mapping[str, float]] = {},  # noqa: B006
        latency: float = 0.0,
        transfer: float = 0.0,
        sends_wait: bool = False,
    ) -> Simulation:
        """When each rank does what; raises UsageError where it would wait for ever.

        costs: of the passes, `{"F": 1, "B": 2, "I": 1, "W": 1}` in any unit of time, for all stages or one entry for each; these are
            the defaults.
        latency, transfer: of each message between ranks, from when it leaves until it is there, and for how long it keeps its link busy.
        sends_wait: whether an explicit SEND occupies its rank until the receiver is there.
        """
        return run(self, self._table, costs, latency, transfer, sends_wait)

    def with_transfers(self) -> Schedule:
        """The same order with the sends and receives between ranks, such that none waits for ever even if sends wait for receivers."""
        self.prove()
        return Schedule(self._table.with_transfers(), self.name)

    def csv(self) -> str:
        """The text that torch.distributed.pipelining reads: a row per rank, a cell per step."""
        return self._table.csv()

    def save(self, path: str | os.PathLike) -> None:
        """Writes `csv()` to a file."""
        try:
            write_whole(path_of(path), self.csv())
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.rows() == other.rows()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.stages} stages on {self.ranks} ranks, {self.microbatches} microbatches>"

    def __str__(self) -> str:
        return str(self._table)


def gpipe(stages: int, microbatches: int) -> list[list[Action]]:
    """All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). One list per rank."""
    return by_name("gpipe")(stages, microbatches)


def one_f_one_b(stages: int, microbatches: int) -> list[list[Action]]:
    """Warm-up forwards, then one forward and one backward in turn, then the rest (Narayanan et al. 2019, PipeDream-Flush).

    Stage s of p runs min(p - s, m) forwards first, so at most that many microbatches are live on it.
    """
    return by_name("1f1b")(stages, microbatches)


def names() -> list[str]:
    """The schedules that `by_name` and `build` know."""
    return _library().names()


def by_name(name: str) -> Callable[..., list[list[Action]]]:
    """The schedule of that name, as a function of stages, microbatches and, if need be, ranks; actions that overlap one after the other.

    Without ranks there are as many as stages, or half as many for schedules of several stages per rank. Raises UsageError that lists
    the known names.
    """
    if name not in names():
        raise UsageError(f"expected a schedule out of {', '.join(names())}, got {name!r}")
    return functools.partial(_actions, name)


def _actions(name: str, stages: int, microbatches: int, ranks: int | None = None) -> list[list[Action]]:
    _count(stages, "stages")
    ranks = _library().default_ranks(name, stages) if ranks is None else ranks
    return build(name, ranks, microbatches, stages).actions()


def build(name: str, ranks: int, microbatches: int, stages: int | None = None) -> Schedule:
    """The schedule of that name. Raises UsageError for an unknown name and for sizes that it does not take.

    stages: in all; without them one per rank, or two for schedules of several stages per rank.
    """
    by_name(name)
    _count(ranks, "ranks")
    _count(microbatches, "microbatches")
    stages = _library().default_stages(name, ranks) if stages is None else stages
    _count(stages, "stages")
    try:
        return Schedule(_library().build(name, stages, microbatches, ranks), name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def load(path: str | os.PathLike) -> Schedule:
    """Reads a schedule CSV of torch.distributed.pipelining, with or without communication: a row per rank, a cell per step.

    Raises UsageError that shows the row, the column and what is wrong there.
    """
    try:
        with open(path_of(path), encoding="utf-8", errors="replace", newline="") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return parse(text, str(path))


def parse(text: str, source: str = "schedule") -> Schedule:
    """A schedule from the text of a CSV file; `source` names it in errors."""
    try:
        return Schedule(_library().read_csv(text, source), source)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _count(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise UsageError(f"expected a number of {what}, got {value!r}")


def _library():
    # Late, so that strategies can be written and saved before the library is loaded.
    from piper import _schedule

    return _schedule
