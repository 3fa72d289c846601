# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows what came of the models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

BAD = ("WRONG", "CRASHED")


def show(rows: dict[str, dict[str, dict]]) -> None:
    """One line for each model, then what was refused or is wrong, each message once."""
    console = Console()
    ways = list(next(iter(rows.values())))
    shown = Table("model", *ways, "loss", "compile s", title="largest gradient error over what is allowed")
    for model, row in rows.items():
        done = [result for result in row.values() if "loss" in result]
        loss = f"{max(result['loss'] for result in done):.0e}" if done else ""
        seconds = " ".join(f"{result['compile_s']:.0f}" for result in done)
        shown.add_row(model, *(_cell(row[way]) for way in ways), loss, seconds)
    console.print(shown)
    for message, places in _messages(rows).items():
        console.print(f"{', '.join(places)}: {message}", markup=False, highlight=False)
    console.print(
        ", ".join(f"{count} {verdict}" for verdict, count in Counter(r["verdict"] for r in all_of(rows)).items())
    )


def all_of(rows: dict[str, dict[str, dict]]) -> Iterator[dict]:
    """Every way of every model."""
    return (result for row in rows.values() for result in row.values())


def _cell(result: dict) -> str:
    if "gradients" not in result:
        return result["verdict"]
    figure = f"{result['gradients']:.2f}"
    if result["verdict"] != "right":
        figure += f" {result['verdict']}"
    return figure + (" (rows meet)" if result["warnings"] else "")


def _messages(rows: dict[str, dict[str, dict]]) -> dict[str, list[str]]:
    messages: dict[str, list[str]] = {}
    for model, row in rows.items():
        for way, result in row.items():
            for message in _told(result):
                messages.setdefault(message, []).append(f"{model} {way}")
    return messages


def _told(result: dict) -> list[str]:
    if result["verdict"] == "WRONG":
        figures = ", ".join(f"{name} {result[name]:.3g}" for name in ("gradients", "losses", "parameters"))
        return [f"WRONG: {figures} times what is allowed; the worst gradient is that of {result['where']}"]
    return [f"{result['verdict']}: {result['message']}"] if "message" in result else []
