# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stages that a forward comes back to, which no pipeline's order of whole stages can run."""

from __future__ import annotations

from .errors import StrategyError
from .importer.annotate import PIPELINE_TAGS
from .importer.imported import Imported

_CYCLE = "expected an order that agrees with the data"


def explained(error: StrategyError, imported: Imported) -> StrategyError:
    """The error, which starts with the module and line that closes the circle where it is one of orders and the forward comes back to a stage."""
    found = revisits(imported) if _CYCLE in str(error) else []
    if found:
        reasons = "\n  ".join(found)
        error.args = (
            f"the forward comes back to a stage that it has left:\n  {reasons}\nput what runs between into one stage with it, or use "
            f"one microbatch\n{error}",
        )
    return error


def revisits(imported: Imported) -> list[str]:
    """Where the forward comes back to a stage, by module and line."""
    found = []
    for tag in PIPELINE_TAGS:
        last, left = None, set()
        for node in imported.forward_nodes():
            index = node.tags.get(tag)
            if index is None or index == last:
                continue
            if index in left:
                found.append(f"{node.where} runs in {tag} {index} again, after {tag} {last}")
            left.add(last)
            last = index
    return list(dict.fromkeys(found))
