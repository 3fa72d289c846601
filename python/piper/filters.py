# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Filters: which nodes of the graph a directive is about."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from .errors import UsageError, short
from .mlir_text import bare_or_quoted, quoted

#: No tag has a larger index.
MAX_INDEX = 2**31 - 1
PASSES = ("F", "B", "I", "W")
# The published Piper writes the input and the weight gradient as BI and BW.
_PASS_ALIASES = {"BI": "I", "BW": "W"}

Filter = dict[str, "int | str | None"]


def is_name(value: object) -> bool:
    """Whether this can be the name of a tag or a stream: text without control characters or halves of characters."""
    return isinstance(value, str) and value != "" and value.isprintable()


def normalize(filter: Mapping[str, int | str | None], where: str) -> Filter:
    """A filter with integer indices and passes F, B, I, W. `where` names the directive in errors.

    A value is an index (an int, or a string that reads as one), "*" (tag present, any index) or None (tag present, no index).
    """
    if not isinstance(filter, Mapping):
        raise UsageError(f"{where}: expected a filter such as {{'stage': 0}}, got {short(filter)}")
    result: Filter = {}
    for tag, value in filter.items():
        if not is_name(tag):
            raise UsageError(f"{where}: expected a tag name in a filter, got {short(tag)}")
        if tag == "PASS":
            value = _PASS_ALIASES.get(value, value) if isinstance(value, str) else value
            if value not in PASSES:
                raise UsageError(f"{where}: expected PASS to be one of F, B, I, W (or BI, BW), got {short(value)}")
        elif value is not None and value != "*":
            value = _index(value, tag, where)
        result[tag] = value
    return result


def _index(value: object, tag: str, where: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INDEX:
        raise UsageError(f"{where}: expected an index, '*' or None for tag '{tag}', got {short(value)}")
    return value


def check_tags(filter: Filter, known: Mapping[str, Collection[int]], where: str) -> None:
    """Raises UsageError for a tag that no annotation and no split introduces, or an index that it does not have."""
    for tag, value in filter.items():
        if tag == "PASS":
            continue
        if tag not in known:
            names = ", ".join(sorted({*known, "PASS"}))
            raise UsageError(
                f"{where}: unknown tag '{tag}'; known tags are {names}. "
                "Mark parts of the model with piper.annotate or piper.annotate_modules"
            )
        if isinstance(value, int) and value not in known[tag]:
            raise UsageError(
                f"{where}: expected '{tag}' to be {_indices(known[tag])}, got {value}, which no operation has"
            )


def _indices(indices: Collection[int]) -> str:
    first, last = min(indices), max(indices)
    if first == last:
        return f"{first}, the only one"
    return f"{first} to {last}" if last - first + 1 == len(set(indices)) else ", ".join(map(str, sorted(set(indices))))


def to_mlir(filter: Filter) -> str:
    """The attribute dictionary of a filter."""
    return "{" + ", ".join(f"{bare_or_quoted(tag)}{_value(value)}" for tag, value in filter.items()) + "}"


def _value(value: int | str | None) -> str:
    if value is None:
        return ""
    return f" = {value} : i64" if isinstance(value, int) else f" = {quoted(value)}"
