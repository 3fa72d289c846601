# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler's diagnostics as messages for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PRINTED_OPERATION = "see current operation: "


def describe(error: Any) -> str:
    """The errors of an MLIRError, a line each: where, what, and the notes below. Printed operations are left out: a reproducer has them."""
    lines: list[str] = []
    for diagnostic in error.error_diagnostics:
        lines.append(_line(diagnostic))
        lines += [f"  note: {_line(note)}" for note in _notes(diagnostic)]
    return "\n".join(lines) or str(error)


def _notes(diagnostic: Any) -> Sequence[Any]:
    return [note for note in diagnostic.notes if not note.message.startswith(_PRINTED_OPERATION)]


def _line(diagnostic: Any) -> str:
    where = _where(diagnostic.location)
    return f"{where}: {diagnostic.message}" if where else diagnostic.message


def _where(location: Any) -> str:
    if location.is_a_file():
        # Directives know the line that wrote them, columns are made up.
        return f"{location.filename}:{location.start_line}"
    if location.is_a_name():
        return location.name_str
    if location.is_a_fused():
        return ", ".join(filter(None, map(_where, location.locations)))
    return _where(location.callee) if location.is_a_callsite() else ""
