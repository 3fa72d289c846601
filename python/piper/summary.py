# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .description import Description

# Each implies those before it.
_ZERO_FLAGS = ("shard_optimizer", "shard_grads", "shard_params")


def describe(description: Description, texts: Mapping[str, str]) -> str:
    """As in "on Mesh(pp=2, dp=2): 4 ranks, 10 rows, 6 chunks; split into 2, place x 2, replicate x 2 (ZeRO-1)"."""
    imported = texts.get("imported", "")
    facts = [_count(description.mesh.size, "rank")]
    if description.rows is not None:
        facts.append(_count(description.rows, "row"))
    facts.append(_count(len(re.findall(r"^ *piper\.chunk ", imported, re.MULTILINE)), "chunk"))
    strategy = ", ".join(_directives(imported)) or "no directives"
    return f"on {description.mesh}: {', '.join(facts)}; {strategy}"


def _directives(imported: str) -> list[str]:
    """The kinds of directives of the strategy. What each is about stands in `Program.ir("imported")`."""
    found: dict[str, list[str]] = {}
    for line in imported.partition("piper.strategy @")[2].splitlines():
        if match := re.match(r" *piper\.(\w+) (.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return [_kind(name, lines) for name, lines in found.items()]


def _kind(name: str, lines: list[str]) -> str:
    text = name if len(lines) == 1 else f"{name} x {len(lines)}"
    if name == "split" and (parts := re.search(r'" into (\d+)', lines[0])):
        return f"{text} into {parts[1]}"
    level = max(sum(flag in line for flag in _ZERO_FLAGS) for line in lines)
    return f"{text} (ZeRO-{level})" if name == "replicate" and level else text


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
