# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every rank did during one step, as a picture."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..execution import Span


COLORS = {
    "forward": "#7fb3e6",
    "backward": "#f2a65a",
    "update": "#8cc98c",
    "accumulation": "#9e9e9e",
    "communication": "#c39bd3",
    "waiting": "#e8e8e8",
    "other": "#c9b28f",
}
_KINDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward",
    "W": "backward",
    "update": "update",
    "accumulate": "accumulation",
}
_MEMORY = "memory"
_WAITING = {"wait", "release"}
_COMMUNICATION = {"send", "recv", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"}


def kind(span: Span) -> str:
    """The colour class of a span."""
    if span.opcode in _WAITING:
        return "waiting"
    if span.opcode in _COMMUNICATION:
        return "communication"
    first = span.label.split(" ", 1)[0]
    return _KINDS.get(first, "other")


#: (seconds, live bytes by kind from then on), in order.
Curve = Sequence[tuple[float, Mapping[str, int]]]


def draw(
    path: str | os.PathLike, spans: Iterable[Span], title: str = "one step", memory: Mapping[int, Curve] | None = None
) -> None:
    """Writes a picture (PNG, SVG or PDF by the file's name) with one row per stream of each rank, time in milliseconds from the first action, microbatch
    numbers where they fit, and under each rank the curve of its live memory where `memory` has one.
    """
    spans = [span for span in spans if span.end > span.start]
    origin = min((span.start for span in spans), default=0.0)
    length = max((span.end for span in spans), default=0.0) - origin
    rows = _rows(spans, memory or {})
    places = {row: number for number, row in enumerate(rows)}
    figure = Figure(figsize=(12, 0.9 + 0.42 * max(len(rows), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for span in spans:
        _draw_span(axes, span, places[span.rank, span.stream], origin, length)
    for rank, curve in (memory or {}).items():
        if (rank, _MEMORY) in places:
            _draw_memory(axes, curve, places[rank, _MEMORY], origin, length)
    axes.set_yticks(range(len(rows)), [f"rank {rank} {stream}" for rank, stream in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title(title, fontsize=10)
    used = {kind(span) for span in spans}
    axes.legend(
        handles=[Patch(color=color, label=name) for name, color in COLORS.items() if name in used],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize=8,
        frameon=False,
    )
    figure.savefig(path, dpi=120)


def _draw_span(axes: Axes, span: Span, row: int, origin: float, length: float) -> None:
    start, width = (span.start - origin) * 1e3, (span.end - span.start) * 1e3
    waited = min(span.waited * 1e3, width)
    axes.barh(row, waited, left=start, height=0.8, color=COLORS["waiting"])
    axes.barh(
        row, width - waited, left=start + waited, height=0.8, color=COLORS[kind(span)], edgecolor="white", linewidth=0.3
    )
    number = _microbatch(span.label)
    if number is not None and width > length * 1e3 * 0.012 and kind(span) in ("forward", "backward"):
        axes.text(start + width / 2, row, number, ha="center", va="center", fontsize=7)


def _draw_memory(axes: Axes, curve: Curve, row: int, origin: float, length: float) -> None:
    """Steps from the bottom of the row; its top is the rank's own peak, which is written beside it."""
    totals = [(time, sum(live.values())) for time, live in curve]
    peak = max((total for _, total in totals), default=0)
    if not peak:
        return
    times = [(time - origin) * 1e3 for time, _ in totals] + [length * 1e3]
    # The axis points down.
    heights = [row + 0.4 - 0.8 * total / peak for _, total in totals] + [row + 0.4 - 0.8 * totals[-1][1] / peak]
    axes.fill_between(times, heights, row + 0.4, step="post", color=COLORS["other"], linewidth=0)
    size = f"{peak / 2**20:.1f} MiB" if peak >= 2**20 else f"{peak / 2**10:.1f} KiB"
    axes.text(length * 1e3, row, f" {size}", ha="left", va="center", fontsize=7)


def _rows(spans: Sequence[Span], memory: Mapping[int, Curve]) -> list[tuple[int, str]]:
    # A rank's computing comes first, its memory last.
    rows = {(span.rank, span.stream) for span in spans} | {(rank, _MEMORY) for rank, curve in memory.items() if curve}
    return sorted(rows, key=lambda row: (row[0], row[1] != "compute", row[1] == _MEMORY, row[1]))


def _microbatch(label: str) -> str | None:
    found = re.search(r"\bMB=(\d+)", label)
    return found.group(1) if found else None
