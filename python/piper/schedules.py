# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipeline schedules as pure functions: which forward and backward each rank runs, in order."""

from __future__ import annotations

from collections.abc import Callable

from .errors import UsageError

# (stage, microbatch, pass)
Action = tuple[int, int, str]


def gpipe(stages: int, microbatches: int) -> list[list[Action]]:
    """All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). One list per rank."""
    return [
        [(stage, m, "F") for m in range(microbatches)] + [(stage, m, "B") for m in range(microbatches)]
        for stage in range(stages)
    ]


def one_f_one_b(stages: int, microbatches: int) -> list[list[Action]]:
    """Warm-up forwards, then one forward and one backward in turn, then the rest (Narayanan et al. 2019, PipeDream-Flush).

    Stage s of p runs min(p - s, m) forwards first, so at most that many microbatches are live on it.
    """
    result = []
    for stage in range(stages):
        warmup = min(stages - stage, microbatches)
        actions = [(stage, m, "F") for m in range(warmup)]
        for m in range(microbatches):
            actions.append((stage, m, "B"))
            if warmup + m < microbatches:
                actions.append((stage, warmup + m, "F"))
        result.append(actions)
    return result


SCHEDULES: dict[str, Callable[[int, int], list[list[Action]]]] = {"gpipe": gpipe, "1f1b": one_f_one_b}


def by_name(name: str) -> Callable[[int, int], list[list[Action]]]:
    """The schedule of that name. Raises UsageError that lists the known ones."""
    if name not in SCHEDULES:
        raise UsageError(f"expected a schedule out of {', '.join(SCHEDULES)}, got {name!r}")
    return SCHEDULES[name]
