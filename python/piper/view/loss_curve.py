# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss of a run as a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw(
    path: str | os.PathLike,
    losses: Sequence[float],
    held_out: Mapping[int, float],
    reference: Sequence[float] = (),
    reference_held_out: Mapping[int, float] | None = None,
) -> None:
    """Writes a PNG: training loss by step, held-out loss by number of steps taken, and the same of a reference run behind them."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if reference:
        axes.plot(range(1, len(reference) + 1), reference, color="0.75", linewidth=3, label="PyTorch, training")
    if reference_held_out:
        axes.plot(*_points(reference_held_out), "s", color="0.6", markersize=9, label="PyTorch, held out")
    axes.plot(range(1, len(losses) + 1), losses, color="tab:blue", linewidth=1, label="Piper, training")
    if held_out:
        axes.plot(*_points(held_out), "o", color="tab:orange", markersize=5, label="Piper, held out")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per byte")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def _points(values: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(values), list(values.values())
