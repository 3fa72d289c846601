# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts a model into pipeline stages whose slowest is as fast as possible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..notices import warn_user
from .errors import ImporterError
from .units import Group, groups, has_parts, units

#: Of a difference of sums.
_ROUNDING = 1e-9
#: Of the speed-up that equal stages would give: with less, a cut is worth a warning, or a look into its largest unit.
_USEFUL, _EVEN = 0.6, 0.8
#: What a cut inside of a unit has to save.
_BETTER = 0.99


def stage_modules(
    model: nn.Module, stages: int, balance: str, batch: Any | None, costs: Mapping[str, float] | None
) -> list[list[str]]:
    """The names of each stage's modules; the arguments are those of `piper.annotate_modules`. Warns if the cut is of little use."""
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < 1:
        raise ImporterError(f"expected a positive number of stages, got {stages!r}")
    if balance not in ("cost", "count"):
        raise ImporterError(f"expected balance to be 'cost' or 'count', got {balance!r}")
    if balance == "count" and costs is not None:
        raise ImporterError("expected no costs with balance='count'")
    if costs is not None:
        _check_costs(costs, units(model))
    found = _cut_units(model, stages, balance, batch, costs)
    if balance == "cost":
        _warn_if_useless(found)
    return found.stages()


@dataclass
class _Cut:
    together: Sequence[Group]
    sums: Sequence[float]
    parts: Sequence[tuple[int, int]]

    def stages(self) -> list[list[str]]:
        return [[name for group in self.together[first:last] for name in group.names] for first, last in self.parts]

    def slowest(self) -> float:
        """The share of the costs that the slowest stage has."""
        return max(sum(self.sums[first:last]) for first, last in self.parts) / (sum(self.sums) or 1)

    def heaviest(self) -> tuple[Group, float]:
        """What has the largest share of the costs in the slowest stage, and its share."""
        first, last = max(self.parts, key=lambda part: sum(self.sums[slice(*part)]))
        index = max(range(first, last), key=self.sums.__getitem__)
        return self.together[index], self.sums[index] / (sum(self.sums) or 1)

    def reaches(self, part: float) -> bool:
        """Whether the stages give this part of the speed-up that equal ones would give."""
        return self.slowest() * len(self.parts) * part <= 1


def _cut_units(
    model: nn.Module, stages: int, balance: str, batch: Any | None, costs: Mapping[str, float] | None
) -> _Cut:
    """Cuts between the units; where one of them is too large for even stages, between its own parts."""
    best, opened = None, set()
    while True:
        found = units(model, opened)
        weights, calls = _weights(model, found, balance, batch, costs)
        together = groups(found, calls)
        if len(together) < stages:
            raise ImporterError(_too_few(stages, together))
        sums = [sum(weights[name] for name in group.names) for group in together]
        bounds = cut(sums, stages)
        now = _Cut(together, sums, list(zip(bounds, bounds[1:], strict=False)))
        if best is None or now.slowest() < best.slowest() * _BETTER:
            best = now
        group, share = now.heaviest()
        unit = found[group.names[0]]
        fixed = balance == "count" or costs is not None or now.reaches(_EVEN)
        if fixed or len(group.names) > 1 or share * stages <= 1 or not has_parts(unit):
            return best
        opened.add(unit)


def _warn_if_useless(found: _Cut) -> None:
    if found.reaches(_USEFUL):
        return
    group, share = found.heaviest()
    names, stages, slowest = ", ".join(f"'{name}'" for name in group.names), len(found.parts), found.slowest()
    why = (
        f"'{group.repeated}' runs again after others, so that no cut may lie between"
        if group.repeated
        else "which can't be cut"
    )
    warn_user(
        f"stages={stages} is of little use: one stage has {slowest:.0%} of the cost, so that {stages} ranks are at most {1 / slowest:.1f} times as fast as one; "
        f'{share:.0%} is {names}, {why} (piper.annotate("stage") in its forward can cut it)',
    )


def _weights(model, found, balance, batch, costs) -> tuple[Mapping[str, float], Sequence[str] | None]:
    # Counting loads a good part of torch, and needs the one release that capture.py knows.
    counted, calls = {}, None
    if batch is not None:
        from .costs import counted as count

        counted, calls = count(model, found, batch)
    if balance == "count":
        return dict.fromkeys(found, 1.0), calls
    if costs is not None:
        return costs, calls
    if batch is not None:
        return counted, calls
    from .costs import from_shapes

    return from_shapes(found), None


def _check_costs(costs: Mapping[str, float], found: Mapping[str, nn.Module]) -> None:
    unknown, missing = [n for n in costs if n not in found], [n for n in found if n not in costs]
    if unknown or missing:
        problems = [f"{name!r} is none of the parts" for name in unknown] + [f"'{name}' is missing" for name in missing]
        raise ImporterError(f"costs: {', '.join(problems)}: expected a number for each of {', '.join(found)}")
    for name, cost in costs.items():
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 <= cost < math.inf:
            raise ImporterError(f"costs: expected a finite number from 0 on for '{name}', got {cost!r}")


def _too_few(stages: int, together: Sequence[Group]) -> str:
    names = ["+".join(group.names) for group in together]
    message = (
        f"expected at most {len(together)} stages, one for each part of the model ({', '.join(names)}), got {stages}"
    )
    repeated = [group.repeated for group in together if group.repeated]
    if repeated:
        message += f"; {', '.join(map(repr, repeated))} runs again after others, so that no cut may lie between"
    return message


def cut(costs: Sequence[float], parts: int) -> list[int]:
    """Bounds of `parts` contiguous, non-empty parts of `costs` with the least largest sum; of several such, the most even.

    Part i is `costs[bounds[i]:bounds[i + 1]]`.
    """
    before = [0.0]
    for cost in costs:
        before.append(before[-1] + cost)
    # One number below which every part must stay, then the least sum of squares: both by the same recursion over the last part.
    slowest, _ = _best(before, parts, lambda total, rest: max(rest, total), math.inf)
    _, bounds = _best(before, parts, lambda total, rest: rest + total * total, slowest * (1 + _ROUNDING))
    return bounds


def _best(before: Sequence[float], parts: int, join, limit: float) -> tuple[float, list[int]]:
    count = len(before) - 1
    value = [0.0] + [math.inf] * count
    starts: list[list[int]] = []
    for part in range(1, parts + 1):
        best, start = [math.inf] * (count + 1), [0] * (count + 1)
        for end in range(part, count - (parts - part) + 1):
            for first in range(end - 1, part - 2, -1):
                total = before[end] - before[first]
                if total > limit:
                    break
                candidate = join(total, value[first])
                if candidate < best[end]:
                    best[end], start[end] = candidate, first
        value = best
        starts.append(start)
    bounds = [count]
    for start in reversed(starts):
        bounds.append(start[bounds[-1]])
    return value[count], bounds[::-1]
