# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The live table of a training run: redrawn in place on a terminal, one line per row elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable

_COLUMNS = ("step", "loss", "PyTorch", "tokens/s", "held out")
_VISIBLE_ROWS = 15


class Table:
    """Rows of a run. A table that is not `shown` takes rows and prints nothing."""

    def __init__(self, shown: bool):
        self._shown = shown
        self._console = Console(highlight=False)
        self._rows: list[tuple[str, ...]] = []
        self._live: Live | None = None

    def note(self, text: str) -> None:
        """Prints a line outside the table."""
        if self._shown:
            self._console.print(text)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Shows the rows that are added inside."""
        if self._shown and self._console.is_terminal:
            with Live(self._draw(), console=self._console, refresh_per_second=4) as self._live:
                yield
            self._live = None
            return
        if self._shown:
            self._print(_COLUMNS)
        yield

    def row(self, step: int, loss: float, expected: float | None, rate: float, held_out: float | None) -> None:
        """Adds a step: its loss, PyTorch's where known, tokens per second, and the held-out loss where measured."""
        optional = tuple("" if value is None else f"{value:.4f}" for value in (expected, held_out))
        self._rows.append((str(step), f"{loss:.4f}", optional[0], f"{rate:,.0f}", optional[1]))
        if self._live is not None:
            self._live.update(self._draw())
        elif self._shown:
            self._print(self._rows[-1])

    def _draw(self) -> RichTable:
        table = RichTable(*_COLUMNS)
        for column in table.columns:
            column.justify = "right"
        for row in self._rows[-_VISIBLE_ROWS:]:
            table.add_row(*row)
        return table

    def _print(self, row: tuple[str, ...]) -> None:
        self._console.print("  ".join(f"{cell:>8}" for cell in row), soft_wrap=True)
