# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What code reads of the machine, which is another at every call: clocks, and random numbers of the operating system."""

from __future__ import annotations

import datetime
import os
import time
from types import FrameType
from typing import Any

from ..notices import warn_user
from .errors import ImporterError
from .user_code import is_own_code, is_standard

_CLOCKS = {
    getattr(time, name): f"time.{name}"
    for clock in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for name in (clock, f"{clock}_ns")
    if hasattr(time, name)
}
_CLOCKS |= {
    datetime.datetime.now: "datetime.now",
    datetime.datetime.utcnow: "datetime.utcnow",
    datetime.datetime.today: "datetime.today",
    datetime.date.today: "date.today",
}
_RANDOM = {os.urandom: "os.urandom"}
if hasattr(os, "getrandom"):
    _RANDOM[os.getrandom] = "os.getrandom"


class Sources:
    """The lines of user code that read them, of what `see` is called with as a profiling function."""

    def __init__(self):
        self._clocks: dict[str, None] = {}
        self._random: dict[str, None] = {}

    def see(self, frame: FrameType, event: str, function: Any) -> None:
        """What `sys.setprofile` calls."""
        if event != "c_call":
            return
        if function in _CLOCKS:
            # Those that libraries read tell when something was: a logger, say.
            if is_own_code(frame.f_code):
                self._clocks[f"{_line(frame)}: '{_CLOCKS[function]}'"] = None
        elif function in _RANDOM:
            self._see_random(frame, _RANDOM[function])

    def _see_random(self, frame: FrameType | None, name: str) -> None:
        # uuid and secrets draw for who calls them.
        while frame is not None and is_standard(frame.f_code):
            name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
            frame = frame.f_back
        if frame is not None and is_own_code(frame.f_code):
            self._random[f"{_line(frame)}: draws from '{name}'"] = None

    def refuse(self) -> None:
        """Raises ImporterError where random numbers were drawn."""
        if self._random:
            raise ImporterError(
                "random numbers of the operating system in forward or loss would be drawn once, at compile, and be the same in every step (draw "
                "them outside and give them to forward as a tensor of the batch, of 0 dims for a single number):\n  "
                + "\n  ".join(self._random)
            )

    def warn(self) -> None:
        """Tells which clocks were read, once."""
        if self._clocks:
            lines, self._clocks = "; ".join(self._clocks), {}
            warn_user(
                f"a clock that forward or loss reads is what it was at compile, in every step (read it outside, where a step depends on it): {lines}"
            )


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
