# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One place where Python keeps values: what it holds, and how it is made to hold them again."""

from __future__ import annotations

import collections
import functools
import os
import pickle
import random
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from .user_code import Names

#: What modules of torch keep for themselves: tables, hooks and flags; parameters of recurrent layers once more.
MODULE_BOOKKEEPING = frozenset(vars(nn.Module())) | frozenset(
    ("_flat_weights", "_flat_weight_refs", "_piper_module_annotations", "_compiled_call_impl")
)
MISSING = type("Missing", (), {"__repr__": lambda self: "nothing"})()

# Of longer lists and dicts only the length is looked at: they are data, not options.
LONGEST = 1_000
CACHED = type(functools.lru_cache(int))


@dataclass(eq=False)
class Place:
    """One holder of values, by key.

    Attributes:
        holder: the list, dict, cell, class, ... itself.
        path: how a message names it.
        named: keys are names of attributes or globals, which count where code uses them.
        keys: of globals, those that code uses.
        module: it holds a module's attributes, without what every module has.
    """

    holder: Any
    path: str
    named: bool = False
    keys: set[str] | None = None
    module: bool = False

    @property
    def is_cache(self) -> bool:
        """Whether it is what a function has returned before, by functools.lru_cache. What a trace adds to it must not stay; whatever it holds is no state."""
        return isinstance(self.holder, CACHED)

    @property
    def is_environment(self) -> bool:
        """Whether it is os.environ."""
        return self.holder is os.environ

    def read(self) -> dict[Any, Any]:
        """The values by key; {"": length} of what is too long."""
        if self.keys is not None:
            return {key: dict.get(self.holder, key, MISSING) for key in self.keys}
        holder = self.holder
        if self.is_cache:
            return {"": holder.cache_info().misses}
        if self.module:
            return {key: value for key, value in holder.items() if key not in MODULE_BOOKKEEPING}
        if isinstance(holder, (list, collections.deque)):
            return dict(enumerate(holder)) if len(holder) <= LONGEST else {"": len(holder)}
        if isinstance(holder, set):
            return {id(item): item for item in holder} if len(holder) <= LONGEST else {"": len(holder)}
        if isinstance(holder, types.CellType):
            return {"": content_of(holder)}
        if isinstance(holder, types.FunctionType):
            return {"__defaults__": holder.__defaults__}
        if self.is_environment:
            return dict(holder)
        if is_random(holder):
            return {"": _random_state(holder)}
        if isinstance(holder, dict):
            # Not by the methods of a class of the user's.
            return dict(dict.items(holder)) if len(holder) <= LONGEST or self.named else {"": len(holder)}
        if isinstance(holder, type):
            # Of the names that Python itself uses, methods alone.
            return {
                name: value
                for name, value in vars(holder).items()
                if not name.startswith("__") or isinstance(value, types.FunctionType)
            }
        return {name: getattr(holder, name, MISSING) for name in slots_of(type(holder))}

    def write(self, before: Mapping[Any, Any]) -> None:
        """Makes it as it was when it read `before`."""
        holder, now = self.holder, self.read()
        if list(now) == list(before) and all(now[key] is before[key] for key in now):
            return
        if self.is_cache:
            holder.cache_clear()
        elif isinstance(holder, (list, collections.deque)):
            if "" not in before:
                holder.clear()
                holder.extend(before.values())
            else:
                while len(holder) > before[""]:
                    holder.pop()
        elif isinstance(holder, set):
            if "" not in before:
                holder.clear()
                holder.update(before.values())
        elif isinstance(holder, types.CellType):
            holder.cell_contents = before[""]
        elif isinstance(holder, dict):
            self._write_dict(before, now)
        elif self.is_environment:
            for key in now.keys() - before.keys():
                del holder[key]
            holder.update({key: value for key, value in before.items() if now.get(key) != value})
        elif is_random(holder):
            _set_random_state(holder, before[""])
        else:
            for key in {**now, **before}:
                value = before.get(key, MISSING)
                if now.get(key, MISSING) is not value:
                    delattr(holder, key) if value is MISSING else setattr(holder, key, value)

    def _write_dict(self, before: Mapping[Any, Any], now: Mapping[Any, Any]) -> None:
        if "" in before and not self.named:
            while len(self.holder) > before[""]:
                dict.popitem(self.holder)
            return
        for key in {**now, **before}:
            value = before.get(key, MISSING)
            if value is MISSING:
                dict.pop(self.holder, key, None)
            elif now.get(key, MISSING) is not value:
                dict.__setitem__(self.holder, key, value)

    def set(self, key: Any, value: Any) -> None:
        """Puts another value in the place of one that it has."""
        holder = self.holder
        if isinstance(holder, dict):
            dict.__setitem__(holder, key, value)
        elif isinstance(holder, (list, collections.deque)):
            holder[key] = value
        elif isinstance(holder, types.CellType):
            holder.cell_contents = value
        elif not isinstance(holder, set):
            setattr(holder, key, value)

    def may_have(self, key: Any, names: Names) -> bool:
        """Whether a new key is one that code with these names may use."""
        return not self.named or names.has(key) and not (self.module and key in MODULE_BOOKKEEPING)

    def name_of(self, key: Any) -> str:
        """How a message names the value of `key`."""
        if key == "":
            return self.path
        if self.keys is not None:
            return f"{self.path}{key}"
        return f"{self.path}.{key}" if self.named else f"{self.path}[{key!r}]"


@dataclass(frozen=True)
class Change:
    """What a run has left at a place."""

    place: Place
    key: Any
    before: Any
    after: Any

    @property
    def name(self) -> str:
        """How a message names it."""
        return self.place.name_of(self.key)


def content_of(cell: types.CellType) -> Any:
    """What a variable of a closure holds; MISSING where it was deleted, or is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def is_random(value: Any) -> bool:
    """Whether it draws random numbers, Python's or NumPy's."""
    return (isinstance(value, random.Random) and not isinstance(value, random.SystemRandom)) or (
        type(value).__module__.startswith("numpy.random") and type(value).__name__ in ("Generator", "RandomState")
    )


def _random_state(value: Any) -> bytes:
    if isinstance(value, random.Random):
        return pickle.dumps(value.getstate())
    return pickle.dumps(value.get_state() if hasattr(value, "get_state") else value.bit_generator.state)


def _set_random_state(value: Any, state: bytes) -> None:
    if isinstance(value, random.Random):
        value.setstate(pickle.loads(state))
    elif hasattr(value, "set_state"):
        value.set_state(pickle.loads(state))
    else:
        value.bit_generator.state = pickle.loads(state)


def slots_of(kind: type) -> list[str]:
    """The attributes that objects of a class have without a dict."""
    names = []
    for parent in kind.__mro__:
        own = vars(parent).get("__slots__", ())
        names += [own] if isinstance(own, str) else list(own)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def is_same(before: Any, after: Any) -> bool:
    """Whether two values are one object, or equal numbers or strings, or tuples of such."""
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    if isinstance(before, tuple):
        return len(before) == len(after) and all(map(is_same, before, after))
    return isinstance(before, (int, float, complex, str, bytes)) and repr(before) == repr(after)
