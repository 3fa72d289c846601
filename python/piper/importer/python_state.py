# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a captured step has taken from Python: numbers, strings, flags and tensors that are no input, and whether they still are what they were.

Which values the code that ran may read is told by the names in it, so some are watched that it does not read. Where one changes, the step is captured again:
only if it is another program then, the change counts.
"""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn

from . import fingerprint
from .marks import TensorMark
from .places import MISSING, Place, Places, is_random, is_same
from .user_code import Names, Ran, is_own_code

# What methods are changed for (profiling, say) is no change of values.
_METHODS = (types.FunctionType, staticmethod, classmethod, property)
#: The end of the name of a module's mode.
TRAINING = ".training"
_SHOWN = (bool, int, float, complex, str, type(None), list, tuple, dict, torch.dtype, enum.Enum)
_MOST_ARRAY_BYTES = 1 << 14


@dataclass(frozen=True)
class Changed:
    """A value that is not what it was."""

    name: str
    before: Any
    after: Any
    place: Place | None = None
    key: Any = None

    def __str__(self) -> str:
        if isinstance(self.after, torch.Tensor) or _is_array(self.after):
            return f"the values of '{self.name}' have changed"
        return f"'{self.name}' was {_short(self.before)} and is {_short(self.after)} now"


@dataclass
class PythonState:
    """What one captured step has taken from Python.

    Attributes:
        model: a reference to the model, which it does not keep alive.
        loss_fn: the loss.
        names, codes: what the code that ran names, and that code.
        retrace: captures again; gives the state then, or None if the step is another program now.
        training: whether modules are in the modes that they had, and not all in eval mode.
    """

    model: Callable[[], nn.Module | None]
    loss_fn: Callable
    names: Names
    codes: Mapping[CodeType, Ran]
    retrace: Callable[[], PythonState | None]
    training: bool = True

    def __post_init__(self):
        # Dict items by (dict, key) that changed without an effect, and that no code names.
        self._idle: set[tuple[int, Any]] = set()
        self.look()

    def look(self) -> None:
        """Takes everything as it is now."""
        roots = {"model": self.model(), "loss_fn": self.loss_fn}
        places = Places(roots)
        for code, ran in self.codes.items():
            if is_own_code(code):
                places.see(code, ran.globals, ran.names_of(code))
        self._values: list[tuple[Callable, Any, Any, Place]] = []
        self._sequences: list[tuple[Any, tuple, Place]] = []
        self._sizes: list[tuple[dict, int, Place]] = []
        self._cells: list[tuple[types.CellType, Any, Place]] = []
        self._others: list[tuple[Place, Any, Any]] = []
        self._tensors: list[tuple[TensorMark, bytes, str]] = []
        self._arrays: list[tuple[Any, bytes, str]] = []
        self._frozen: dict[int, Any] = {}
        self._dtype = torch.get_default_dtype()
        self._still = _in_eval_mode(roots) if self.training else []
        self._add_holders(places.used_places(self.names, self.codes))
        seen = _state_tensors(roots.values())
        for place, key in places.used(self.names, self.codes):
            if place.is_cache or is_random(place.holder):
                continue
            value = place.read().get(key, MISSING)
            if (id(place.holder), key) in self._idle or isinstance(place.holder, type) and isinstance(value, _METHODS):
                continue
            self._add(place, key, value)
            if id(value) not in seen:
                seen.add(id(value))
                self._add_content(value, place.name_of(key))

    def _add_holders(self, places: Iterable[Place]) -> None:
        for place in places:
            if isinstance(place.holder, (list, collections.deque)):
                self._sequences.append((place.holder, tuple(place.holder), place))
            elif isinstance(place.holder, dict) and place.keys is None:
                # New keys: of objects they may stand before an attribute of the class.
                self._sizes.append((place.holder, len(place.holder), place))

    def _add(self, place: Place, key: Any, value: Any) -> None:
        if isinstance(value, (list, dict, tuple, set)):
            self._frozen[id(value)] = _freeze(value)
        holder = vars(place.holder) if isinstance(place.holder, type) else place.holder
        if isinstance(holder, (dict, types.MappingProxyType)):
            self._values.append((_getter(holder), key, value, place))
        elif isinstance(holder, types.CellType) and value is not MISSING:
            self._cells.append((holder, value, place))
        elif not isinstance(holder, (list, collections.deque)):
            self._others.append((place, key, value))

    def _add_content(self, value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            self._tensors.append((TensorMark(value), fingerprint.of_tensor(value), name))
        elif _is_array(value) and value.nbytes <= _MOST_ARRAY_BYTES:
            self._arrays.append((value, value.tobytes(), name))

    def is_same(self) -> bool:
        """Whether all values are the objects that they were. The only thing that every step does."""
        for get, key, value, _ in self._values:
            if get(key, MISSING) is not value:
                return False
        for holder, items, _ in self._sequences:
            if len(holder) != len(items) or not all(map(operator.is_, holder, items)):
                return False
        for holder, size, _ in self._sizes:
            if len(holder) != size:
                return False
        try:
            for cell, value, _ in self._cells:
                if cell.cell_contents is not value:
                    return False
        except ValueError:
            # A variable that was deleted.
            return False
        for place, key, value in self._others:
            if place.read().get(key, MISSING) is not value:
                return False
        for mark, _, _ in self._tensors:
            if mark.moved():
                return False
        if torch.get_default_dtype() is not self._dtype:
            return False
        for attributes, _ in self._still:
            if attributes["training"]:
                return False
        return all(array.tobytes() == content for array, content, _ in self._arrays)

    def changes(self) -> list[Changed]:
        """The values that are not equal to what they were."""
        pairs = [(place, key, value, get(key, MISSING)) for get, key, value, place in self._values]
        pairs += [(place, "", value, place.read()[""]) for _, value, place in self._cells]
        pairs += [(place, key, value, place.read().get(key, MISSING)) for place, key, value in self._others]
        for holder, items, place in self._sequences:
            before, now = dict(enumerate(items)), dict(enumerate(holder))
            pairs += [(place, key, before.get(key, MISSING), now.get(key, MISSING)) for key in {**before, **now}]
        for holder, size, place in self._sizes:
            new = list(dict.keys(holder))[size:]
            pairs += [(place, key, MISSING, holder[key]) for key in new if not place.named or self.names.has(key)]
        found = [
            Changed(place.name_of(key), before, after, place, key)
            for place, key, before, after in pairs
            if not self._is_equal(before, after)
        ]
        found += [
            Changed(name, None, mark.tensor)
            for mark, content, name in self._tensors
            if mark.moved() and fingerprint.of_tensor(mark.tensor) != content
        ]
        if torch.get_default_dtype() is not self._dtype:
            found.append(Changed("torch.get_default_dtype()", self._dtype, torch.get_default_dtype()))
        # From training to eval mode is what scripts do between steps.
        found += [Changed(name, False, True) for attributes, name in self._still if attributes["training"]]
        found += [Changed(name, None, array) for array, content, name in self._arrays if array.tobytes() != content]
        return found

    def traced_again(self, changes: Iterable[Changed]) -> PythonState | None:
        """The state now, if the step is the same program in spite of `changes`."""
        again = self.retrace()
        if again is None:
            return None
        again._idle = self._idle | {
            (id(change.place.holder), change.key)
            for change in changes
            if change.place is not None and not change.place.named and change.key not in self.names.strings
        }
        again.look()
        return again

    def _is_equal(self, before: Any, after: Any) -> bool:
        if is_same(before, after):
            return True
        return id(before) in self._frozen and self._frozen[id(before)] == _freeze(after)


def _in_eval_mode(roots: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The attributes of modules that are in eval mode, with the names of their modes."""
    return [
        (vars(part), f"{root}.{name}{TRAINING}" if name else f"{root}{TRAINING}")
        for root, module in roots.items()
        if isinstance(module, nn.Module)
        for name, part in module.named_modules()
        if not part.training
    ]


def _state_tensors(roots: Any) -> set[int]:
    """Parameters and buffers, which have a watch of their own."""
    modules = [root for root in roots if isinstance(root, nn.Module)]
    return {id(tensor) for module in modules for tensor in [*module.parameters(), *module.buffers()]}


def _getter(holder: Any) -> Callable:
    """`holder.get`, but for classes that have one of their own."""
    is_dict = isinstance(holder, dict) and type(holder).get is not dict.get
    return functools.partial(dict.get, holder) if is_dict else holder.get


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _freeze(value: Any) -> Any:
    """Something equal for equal containers."""
    if isinstance(value, dict):
        return (type(value), tuple((_freeze(key), _freeze(item)) for key, item in list(value.items())[:1000]))
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(map(_freeze, value[:1000])))
    if isinstance(value, (set, frozenset)):
        return (type(value), frozenset(map(_freeze, list(value)[:1000])))
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype)):
        return (type(value), repr(value))
    return id(value)


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, _SHOWN) else ""
    if not text or value is MISSING:
        return "missing" if value is MISSING else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
