# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a captured step has taken from Python: numbers, strings, flags and tensors that are no input, and whether they still are what they were.

Which values the code that ran may read is told by the names in it, so some are watched that it does not read. Where one changes, the step is captured again:
only if it is another program then, the change counts.
"""

from __future__ import annotations

import collections
import enum
import operator
import os
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn

from . import fingerprint
from .capture import last_user_line
from .changed import Changed, Entries, becomes, is_array
from .errors import ImporterError
from .marks import TensorMark
from .place import MISSING, Place, is_random, is_same
from .places import Places, function_of
from .ran_code import RanCode
from .user_code import Names, Ran, is_own_code

_METHODS = (types.FunctionType, types.MethodType, staticmethod, classmethod, property)
#: The end of the name of a module's mode.
TRAINING = ".training"
_MOST_ARRAY_BYTES = 1 << 14


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
        #: Why the step could not be captured again.
        self.failure = ""
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
        self._values, self._of_classes = Entries(dict.get), Entries(types.MappingProxyType.get)
        self._sequences: list[tuple[Any, tuple, Place]] = []
        self._dicts: list[tuple[dict, Place]] = []
        self._cells: list[tuple[types.CellType, Any, Place]] = []
        self._others: list[tuple[Place, Any, Any]] = []
        self._tensors: list[tuple[TensorMark, bytes, str]] = []
        self._arrays: list[tuple[Any, bytes, str]] = []
        self._frozen: dict[int, Any] = {}
        self._dtype = torch.get_default_dtype()
        self._still = _in_eval_mode(roots) if self.training else []
        self._add_holders(places.used_places(self.names, self.codes))
        self._sized = [holder for holder, _ in self._dicts]
        self._sizes = list(map(len, self._sized))
        functions = places.functions(self.names, self.codes)
        self._code = RanCode(roots, self.codes, functions, self.training)
        self._environment = Entries(dict.get)
        strings = set(self.names.strings)
        reads_environment = False
        seen = _state_tensors(roots.values())
        for place, key in places.used(self.names, self.codes):
            if place.is_cache or is_random(place.holder):
                continue
            if place.is_environment:
                reads_environment = True
                continue
            value = place.read().get(key, MISSING)
            if isinstance(value, str):
                strings.add(value)
            if (id(place.holder), key) in self._idle:
                continue
            if isinstance(place.holder, type) and isinstance(value, _METHODS) and not function_of(value, self.codes):
                continue
            self._add(place, key, value)
            if id(value) not in seen:
                seen.add(id(value))
                self._add_content(value, place.name_of(key))

        if reads_environment:
            self._add_environment(strings)

    def _add_environment(self, names: Iterable[str]) -> None:
        """The variables that code may read, set or not: its strings may be their names."""
        variables = os.environ._data
        for name in filter(str.isidentifier, names):
            key = os.environ.encodekey(name)
            self._environment.add(variables, key, variables.get(key, MISSING), f"os.environ['{name}']")

    def _add_holders(self, places: Iterable[Place]) -> None:
        for place in places:
            if isinstance(place.holder, (list, collections.deque)):
                self._sequences.append((place.holder, tuple(place.holder), place))
            elif isinstance(place.holder, dict) and place.keys is None:
                # New keys: of objects they may stand before an attribute of the class.
                self._dicts.append((place.holder, place))

    def _add(self, place: Place, key: Any, value: Any) -> None:
        if isinstance(value, (list, dict, tuple, set)):
            self._frozen[id(value)] = _freeze(value)
        holder = place.holder
        if isinstance(holder, dict):
            self._values.add(holder, key, value, place)
        elif isinstance(holder, type):
            self._of_classes.add(vars(holder), key, value, place)
        elif isinstance(holder, types.CellType) and value is not MISSING:
            self._cells.append((holder, value, place))
        elif not isinstance(holder, (list, collections.deque)):
            self._others.append((place, key, value))

    def _add_content(self, value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            self._tensors.append((TensorMark(value), fingerprint.of_tensor(value), name))
        elif is_array(value) and value.nbytes <= _MOST_ARRAY_BYTES:
            self._arrays.append((value, value.tobytes(), name))

    def is_same(self) -> bool:
        """Whether all values are the objects that they were. The only thing that every step does."""
        if not (
            self._values.is_same()
            and self._of_classes.is_same()
            and self._code.is_same()
            and self._environment.is_same()
        ):
            return False
        for holder, items, _ in self._sequences:
            if len(holder) != len(items) or not all(map(operator.is_, holder, items)):
                return False
        if list(map(len, self._sized)) != self._sizes:
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
        pairs = [*self._values.changed(), *self._of_classes.changed()]
        pairs += [(place, "", value, place.read()[""]) for _, value, place in self._cells]
        pairs += [(place, key, value, place.read().get(key, MISSING)) for place, key, value in self._others]
        for holder, items, place in self._sequences:
            before, now = dict(enumerate(items)), dict(enumerate(holder))
            pairs += [(place, key, before.get(key, MISSING), now.get(key, MISSING)) for key in {**before, **now}]
        for (holder, place), size in zip(self._dicts, self._sizes, strict=True):
            new = list(dict.items(holder))[size:]
            pairs += [(place, key, MISSING, value) for key, value in new if place.may_have(key, self.names)]
        found = [
            Changed(place.name_of(key), before, after, place, key, _text(place.name_of(key), before, after))
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
        found += [
            Changed(name, *(value if value is MISSING else os.environ.decodevalue(value) for value in (before, now)))
            for name, _, before, now in self._environment.changed()
            if before != now
        ]
        found += self._code.changes()
        # A method may be found both by its class and by those that run it.
        return list({change.name: change for change in found}.values())

    def traced_again(self, changes: Iterable[Changed]) -> PythonState | None:
        """The state now, if the step is the same program in spite of `changes`."""
        try:
            again = self.retrace()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is no longer the step that was captured)
            line = "" if isinstance(error, ImporterError) else f"{last_user_line(error.__traceback__)}: "
            self.failure = f"{line}{error}"
            return None
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


def _text(name: str, before: Any, after: Any) -> str:
    """How a message tells of another function in some place; of values "", which tell themselves."""
    return f"'{name}' {becomes(before, after)}" if isinstance(before, _METHODS) or isinstance(after, _METHODS) else ""


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
