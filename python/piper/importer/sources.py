# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects that give another value each time they are asked: generators of random numbers, and iterators that are kept between calls."""

from __future__ import annotations

import collections.abc
import io
import itertools
import os
import pickle
import random
import types
from typing import Any

_HEAP_TYPE = 1 << 9
# Of iterators over iterators, how far down it is looked.
_DEEPEST = 4


def is_random(value: Any) -> bool:
    """Whether it draws random numbers, Python's or NumPy's."""
    return isinstance(value, random.Random) or (
        type(value).__module__.startswith("numpy.random") and type(value).__name__ in ("Generator", "RandomState")
    )


def is_iterator(value: Any) -> bool:
    """Whether it is a generator or one of Python's own iterators, whose state no attribute shows."""
    if isinstance(value, io.IOBase) or not isinstance(value, collections.abc.Iterator):
        return False
    return isinstance(value, types.GeneratorType) or not type(value).__flags__ & _HEAP_TYPE


def is_source(value: Any) -> bool:
    """Whether it is one or the other."""
    return is_random(value) or is_iterator(value)


def state_of(value: Any) -> bytes:
    """Something that is equal as long as nothing was drawn. What has no state to see is never equal."""
    if is_iterator(value):
        return _iterator_state(value, _DEEPEST).encode()
    if isinstance(value, random.SystemRandom):
        return os.urandom(8)
    if isinstance(value, random.Random):
        return pickle.dumps(value.getstate())
    return pickle.dumps(value.get_state() if hasattr(value, "get_state") else value.bit_generator.state)


def set_back(value: Any, state: bytes) -> None:
    """Random numbers go on where they were; iterators can't."""
    if is_iterator(value) or isinstance(value, random.SystemRandom):
        return
    if isinstance(value, random.Random):
        value.setstate(pickle.loads(state))
    elif hasattr(value, "set_state"):
        value.set_state(pickle.loads(state))
    else:
        value.bit_generator.state = pickle.loads(state)


def _iterator_state(value: Any, depth: int) -> str:
    if isinstance(value, (itertools.count, itertools.repeat)):
        return repr(value)
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return "" if frame is None else f"{frame.f_lasti} {[_item_state(v, depth) for v in frame.f_locals.values()]}"
    try:
        parts = value.__reduce__()
    except Exception:  # noqa: BLE001
        return os.urandom(8).hex()
    return str([_item_state(item, depth) for part in parts for item in (part if isinstance(part, tuple) else (part,))])


def _item_state(item: Any, depth: int) -> str:
    if depth and is_iterator(item):
        return _iterator_state(item, depth - 1)
    return repr(item) if isinstance(item, (bool, int, float, str)) else str(id(item))
