# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins for iterators that stay from call to call, which refuse to be advanced: the next call would get other values, and an iterator can't be set back."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from typing import Any, NoReturn

from .errors import ImporterError
from .user_code import own_line


class StandIn:
    """In the place of an iterator, which is not touched. `name` is how a message names that."""

    def __init__(self, iterator: Any, name: str):
        self._iterator = iterator
        self._name = name

    def __iter__(self) -> StandIn:
        return self

    def __next__(self) -> NoReturn:
        raise ImporterError(
            "forward or loss changes Python state that its next call sees, which a compiled step can't (give what the iterator gives to forward as a "
            "tensor of the batch, or a list in its place, which every call reads from its beginning):\n  "
            f"{own_line()}: '{self._name}' is a {type(self._iterator).__name__} that goes on with every call"
        )

    def send(self, _value: Any) -> NoReturn:
        """As a generator's, which goes on."""
        self.__next__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def stand_in(value: Any, name: str) -> Any:
    """What takes the place of an iterator, or of a tuple that holds one; None for anything else."""
    if type(value) is tuple:
        items = [stand_in(item, f"{name}[{index}]") for index, item in enumerate(value)]
        replaced = (own if own is not None else item for own, item in zip(items, value, strict=True))
        return tuple(replaced) if any(item is not None for item in items) else None
    return StandIn(value, name) if _goes_on(type(value)) else None


@functools.lru_cache(1024)
def _goes_on(kind: type) -> bool:
    """Whether objects of a class are iterators that keep where they are to themselves. Those of a class in Python have attributes, which are looked at."""
    from .places import is_object_of

    return issubclass(kind, Iterator) and not issubclass(kind, (StandIn, io.IOBase)) and not is_object_of(kind)
