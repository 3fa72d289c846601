# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Filters: which nodes of the graph a directive is about."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from .errors import UsageError

PASSES = ("F", "B", "I", "W")
# The published Piper writes the input and the weight gradient as BI and BW.
_PASS_ALIASES = {"BI": "I", "BW": "W"}

Filter = dict[str, "int | str | None"]


def normalize(filter: Mapping[str, int | str | None], where: str) -> Filter:
    """A filter with integer indices and passes F, B, I, W. `where` names the directive in errors.

    A value is an index (an int, or a string that reads as one), "*" (tag present, any index) or None (tag present, no index).
    """
    if not isinstance(filter, Mapping):
        raise UsageError(f"{where}: expected a filter such as {{'stage': 0}}, got {filter!r}")
    result: Filter = {}
    for tag, value in filter.items():
        if not isinstance(tag, str) or not tag:
            raise UsageError(f"{where}: expected a tag name in a filter, got {tag!r}")
        if tag == "PASS":
            value = _PASS_ALIASES.get(value, value) if isinstance(value, str) else value
            if value not in PASSES:
                raise UsageError(f"{where}: expected PASS to be one of F, B, I, W (or BI, BW), got {value!r}")
        elif isinstance(value, str) and re.fullmatch(r"\d+", value):
            value = int(value)
        elif (
            value is not None and value != "*" and (isinstance(value, bool) or not isinstance(value, int) or value < 0)
        ):
            raise UsageError(f"{where}: expected an index, '*' or None for tag '{tag}', got {value!r}")
        result[tag] = value
    return result


def check_tags(filter: Filter, known: Iterable[str], where: str) -> None:
    """Raises UsageError for a tag that no annotation and no split introduces."""
    names = sorted(set(known) | {"PASS"})
    for tag in filter:
        if tag not in names:
            raise UsageError(f"{where}: unknown tag '{tag}'; known tags are {', '.join(names)}")


def to_mlir(filter: Filter) -> str:
    """The attribute dictionary of a filter."""
    return "{" + ", ".join(f"{_name(tag)}{_value(value)}" for tag, value in filter.items()) + "}"


def _name(tag: str) -> str:
    return tag if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$.]*", tag) else json.dumps(tag)


def _value(value: int | str | None) -> str:
    if value is None:
        return ""
    return f" = {value} : i64" if isinstance(value, int) else f" = {json.dumps(value)}"
