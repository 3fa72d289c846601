# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a watched value was and is now, and many such values that are compared at once."""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .place import MISSING, Place
from .places import function_of

_SHOWN = (bool, int, float, complex, str, type(None), list, tuple, dict, torch.dtype, enum.Enum)


@dataclass(frozen=True)
class Changed:
    """A value that is not what it was; or code, with the `text` that says how. `part`: it is a module in a place of another."""

    name: str
    before: Any
    after: Any
    place: Place | None = None
    key: Any = None
    text: str = ""
    part: bool = False

    def __str__(self) -> str:
        if self.text:
            return self.text
        if isinstance(self.after, torch.Tensor) or is_array(self.after):
            return f"the values of '{self.name}' have changed"
        before, after = _short(self.before), _short(self.after)
        if before == after:
            return f"'{self.name}' is another {type(self.after).__name__} now"
        return f"'{self.name}' was {before} and is {after} now"


class Entries:
    """Values of dicts by key, and what they belong to. All are compared within a few calls of C code: every step does."""

    def __init__(self, get: Callable):
        self._get = get
        self._holders: list[Any] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._of: list[Any] = []

    def add(self, holder: Any, key: Any, value: Any, of: Any) -> None:
        """Takes the value of a dict's key; MISSING is none. `of` is what `changed` gives back."""
        for items, item in zip(
            (self._holders, self._keys, self._values, self._of), (holder, key, value, of), strict=True
        ):
            items.append(item)

    def is_same(self) -> bool:
        """Whether all are the objects that they were."""
        now = map(self._get, self._holders, self._keys, itertools.repeat(MISSING))
        return all(map(operator.is_, now, self._values))

    def changed(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """What is another object now: what it belongs to, its key, what it was and what it is."""
        for holder, key, value, of in zip(self._holders, self._keys, self._values, self._of, strict=True):
            now = self._get(holder, key, MISSING)
            if now is not value:
                yield of, key, value, now


def is_array(value: Any) -> bool:
    """Whether it is one of NumPy's arrays."""
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def becomes(before: Any, now: Any) -> str:
    """What has become of a function or module, for messages."""
    if before is MISSING or now is MISSING:
        return "was added" if before is MISSING else "was removed"
    function = function_of(now)
    code = getattr(function, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"is another {'function' if callable(now) and not isinstance(now, nn.Module) else type(now).__name__} now{where}"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, _SHOWN) else ""
    if not text or value is MISSING:
        return "missing" if value is MISSING else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
