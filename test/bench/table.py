# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows the results of a benchmark."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_FIGURES = {"ms": "ms a step", "cpu_ms": "CPU ms per rank", "rss_mb": "peak MB per rank"}


def show(result: dict) -> None:
    """Prints a table of ways and one of ratios."""
    console = Console()
    ways = Table("way", "ranks", *_FIGURES.values(), "loss difference", title=f"{result['size']}, {result['dtype']}")
    reference = next(iter(result["ways"].values()))["losses"]
    for way, summary in result["ways"].items():
        difference = max(abs(a - b) / abs(b) for a, b in zip(summary["losses"][:5], reference[:5], strict=True))
        figures = (f"{summary[name]:.0f}" for name in _FIGURES)
        ways.add_row(way, str(summary["ranks"]), *figures, f"{difference:.1e}")
    console.print(ways)
    ratios = Table("ratio", *_FIGURES.values(), title="medians of the rounds' ratios (lowest to highest)")
    for pair, values in result["pairs"].items():
        cells = (f"{v['median']:.3f} ({v['low']:.2f} to {v['high']:.2f})" for v in (values[name] for name in _FIGURES))
        ratios.add_row(pair, *cells)
    console.print(ratios)
    for way, seconds in result["compile_s"].items():
        console.print(f"compiled {way} in {seconds:.1f} s")
