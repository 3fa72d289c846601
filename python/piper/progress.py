# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A progress bar for what takes seconds: shown where standard error is a terminal, by one process of a job."""

from __future__ import annotations

import os
import sys
import threading


class Progress:
    """One bar that goes through several steps; `step` begins the next, `done` counts its parts. Safe from any thread."""

    def __init__(self, wanted: bool):
        self._lock = threading.Lock()
        self._bar = None
        if wanted and sys.stderr.isatty() and os.environ.get("RANK", "0") == "0":
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, name: str, total: int | None = None) -> None:
        """Begins a step of `total` parts (None: unknown)."""
        with self._lock:
            if self._bar is not None:
                self._bar.reset(self._task, total=total, description=name)

    def done(self, parts: int = 1) -> None:
        """Counts parts of the step as done."""
        with self._lock:
            if self._bar is not None:
                self._bar.advance(self._task, parts)
