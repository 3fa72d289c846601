# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A schedule in time: makespan, bubbles and live chunks, as a table, JSON and a picture of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import UsageError, short

if TYPE_CHECKING:
    from .schedules import Schedule

#: In these units F, I and W take one, B two.
UNIT_COSTS = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}


class Simulation:
    """What a schedule takes. Times are in the unit of the costs that it was run with."""

    def __init__(self, schedule: Schedule, table, times, costs: list[dict[str, float]]) -> None:
        self.schedule = schedule
        self.costs = costs
        self._table = table
        self._times = times

    @property
    def makespan(self) -> float:
        """When the last rank ends."""
        return self._times.makespan

    @property
    def bubble(self) -> float:
        """The largest of `bubbles`."""
        return self._times.bubble

    @property
    def bubbles(self) -> list[float]:
        """Idle time of each rank between its first start and its last end."""
        return [rank.bubble for rank in self._times.ranks]

    @property
    def peak_live(self) -> list[int]:
        """Most chunks alive at once on each rank: from the forward to the end of B, or of W where the backward is divided."""
        return [rank.peak_live for rank in self._times.ranks]

    def timeline(self) -> str:
        """One line per rank, time from left to right."""
        return self._table.timeline(self._times)

    def to_json(self) -> dict[str, Any]:
        """Everything, for json.dump: sizes, costs, the numbers of each rank, and when each action starts and ends."""
        fields = ("first_start", "last_end", "busy", "bubble", "peak_live")
        return {
            "schedule": self.schedule.name,
            "stages": self.schedule.stages,
            "ranks": self.schedule.ranks,
            "microbatches": self.schedule.microbatches,
            "costs": self.costs,
            "makespan": self.makespan,
            "bubble": self.bubble,
            "per_rank": [{name: getattr(rank, name) for name in fields} for rank in self._times.ranks],
            "cells": [
                [
                    {"actions": [_print(action) for action in cell], "start": span.start, "end": span.end}
                    for cell, span in zip(row, spans, strict=True)
                    if cell
                ]
                for row, spans in zip(self._table.cells(), self._times.cells, strict=True)
            ],
        }

    def __str__(self) -> str:
        return str(self._times)


def run(
    schedule: Schedule,
    table,
    costs: Mapping[str, float] | Sequence[Mapping[str, float]],
    latency: float,
    transfer: float,
    sends_wait: bool,
) -> Simulation:
    """Simulates; the arguments are those of `Schedule.simulate`."""
    entries = [costs] if isinstance(costs, Mapping) else costs
    if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
        raise UsageError(f"expected costs such as {{'F': 1, 'B': 2}}, for all stages or each of them, got {costs!r}")
    stages = [_complete(entry) for entry in entries]
    try:
        times = table.simulate(
            [tuple(entry[name] for name in "FBIW") for entry in stages],
            as_float(latency, "as latency"),
            as_float(transfer, "as transfer"),
            bool(sends_wait),
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{schedule.name}: {error}") from None
    return Simulation(schedule, table, times, stages)


def _complete(costs: Mapping[str, float]) -> dict[str, float]:
    for name in costs:
        if name not in UNIT_COSTS:
            raise UsageError(f"expected costs of {', '.join(UNIT_COSTS)}, got one of {name!r}")
    return {**UNIT_COSTS, **{name: as_float(value, f"as cost of {name}") for name, value in costs.items()}}


def as_float(value: object, what: str) -> float:
    """A number that a user gave; text and truth values are none, nor is an integer beyond floats."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"expected a number {what}, got {short(value)}")
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"expected a number {what} up to 1e18, got {short(value)}") from None


def _print(action: tuple[int, str, int]) -> str:
    stage, kind, microbatch = action
    return f"{stage}{kind}{microbatch if microbatch >= 0 else ''}"
