# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipeline schedules as pure functions: which forward and backward each rank runs, in order. The compiler's library computes them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from .errors import UsageError

# (stage, microbatch, pass)
Action = tuple[int, int, str]


def gpipe(stages: int, microbatches: int) -> list[list[Action]]:
    """All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). One list per rank."""
    return _build("gpipe", stages, microbatches)


def one_f_one_b(stages: int, microbatches: int) -> list[list[Action]]:
    """Warm-up forwards, then one forward and one backward in turn, then the rest (Narayanan et al. 2019, PipeDream-Flush).

    Stage s of p runs min(p - s, m) forwards first, so at most that many microbatches are live on it.
    """
    return _build("1f1b", stages, microbatches)


def names() -> list[str]:
    """The schedules that `by_name` knows."""
    return _library().schedule_names()


def by_name(name: str) -> Callable[[int, int], list[list[Action]]]:
    """The schedule of that name, as a function of stages and microbatches. Raises UsageError that lists the known ones."""
    if name not in names():
        raise UsageError(f"expected a schedule out of {', '.join(names())}, got {name!r}")
    return functools.partial(_build, name)


def _build(name: str, stages: int, microbatches: int) -> list[list[Action]]:
    try:
        rows = _library().schedule(name, stages, microbatches)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return [[_parse(action) for action in row] for row in rows]


def _parse(action: str) -> Action:
    """'2F0' is the forward of stage 2 on microbatch 0."""
    stage, pass_, microbatch = re.fullmatch(r"(\d+)([FBIW])(\d+)", action).groups()
    return int(stage), int(microbatch), pass_


def _library():
    # Late, so that strategies can be written and saved before the compiler's library is loaded.
    from piper._mlir._mlir_libs import _piper

    return _piper
