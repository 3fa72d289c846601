# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strategies as JSON: a list of objects, one directive each."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from .directives import DIRECTIVES, Strategy
from .errors import UsageError, short
from .mesh import Mesh


def read(path: str | os.PathLike, mesh: Mesh | None = None) -> Strategy:
    """Reads a strategy file. Raises UsageError that names the file, the entry and the field."""
    try:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file, object_pairs_hook=_fields)
        return from_objects(entries, mesh, str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"{path}: expected a list of directives, got JSON of too many levels") from None
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{path}: expected JSON: {error}") from None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which nothing is lost."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field '{next(name for name in names if names.count(name) > 1)}' appears twice")
    return fields


def from_objects(entries: Any, mesh: Mesh | None, source: str) -> Strategy:
    """A strategy from parsed JSON; `source` names it in errors."""
    if not isinstance(entries, list):
        raise UsageError(f"{source}: expected a list of directives, got {type(entries).__name__}")
    strategy = Strategy(mesh or _smallest_mesh(entries, source))
    for index, entry in enumerate(entries):
        where = f"{source}: entry {index}"
        arguments = _arguments(entry, where)
        operation = arguments.pop("op")
        try:
            getattr(strategy, operation)(**arguments)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        # What the file says has no Python source line.
        strategy.directives[-1] = dataclasses.replace(strategy.directives[-1], where="")
    return strategy


def _arguments(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: expected an object, got {short(entry)}")
    operation = entry.get("op")
    if not isinstance(operation, str) or operation not in DIRECTIVES:
        raise UsageError(f"{where}: expected op to be one of {', '.join(DIRECTIVES)}, got {short(operation)}")
    entry = dict(entry)
    # The published Piper also accepts one device.
    if operation == "place" and "device" in entry and "devices" not in entry:
        device = entry.pop("device")
        entry["devices"] = device if isinstance(device, list) else [device]
    fields = [item for item in dataclasses.fields(DIRECTIVES[operation]) if item.name != "where"]
    known = ["op", *(item.name for item in fields)]
    for name in entry:
        if name not in known:
            raise UsageError(f"{where}: unknown field '{name}' of {operation}; known fields are {', '.join(known)}")
    for item in fields:
        if item.default is dataclasses.MISSING and item.name not in entry:
            raise UsageError(f"{where}: {operation} lacks the field '{item.name}'")
    return entry


def _smallest_mesh(entries: list[Any], source: str) -> Mesh:
    ranks = [0]
    for entry in entries:
        devices = entry.get("devices", entry.get("device")) if isinstance(entry, dict) else None
        for rank in devices if isinstance(devices, list) else [devices]:
            if isinstance(rank, int) and not isinstance(rank, bool):
                ranks.append(rank)
    try:
        return Mesh(rank=max(ranks) + 1)
    except UsageError as error:
        raise UsageError(f"{source}: device {short(max(ranks))}: {error}") from None
