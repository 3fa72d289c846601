# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The places where Python keeps what forward and loss may read or change: attributes, globals, closures, lists and dicts."""

from __future__ import annotations

import argparse
import collections
import contextlib
import enum
import functools
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import nn

from .iterators import stand_in
from .place import CACHED, LONGEST, MISSING, Change, Place, content_of, is_random, is_same, slots_of
from .user_code import Names, is_own_code, names_of

_MOST_NODES = 50_000
_HEAP_TYPE = 1 << 9
_FOREIGN = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "piper", "functorch", "torchgen"}
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
_FUNCTIONS = (types.FunctionType, types.MethodType, staticmethod, classmethod, property, functools.partial)


@dataclass(eq=False)
class _Node:
    """A value, its places, and what it leads to: each where code names an attribute, or has run, or always (None)."""

    value: Any
    path: str = ""
    places: list[Place] = field(default_factory=list)
    below: list[tuple[str | CodeType | None, _Node]] = field(default_factory=list)


class Places:
    """All places that can be reached from some values, and from the globals of code that is seen to run."""

    def __init__(self, roots: Mapping[str, Any]):
        self._root = _Node(None)
        self._nodes: dict[int, _Node] = {}
        self._globals: dict[tuple[int, str], Place] = {}
        self._found: list[Place] = []
        self._environment: Place | None = None
        self._before: list[dict[Place, dict[Any, Any]]] = []
        # What a stand-in is for, with the stand-in, by its address.
        self._hidden: dict[int, tuple[Any, Any]] = {}
        for name, root in roots.items():
            self._visit(root, name)

    def see(self, code: CodeType, names: dict[str, Any], used: Names | None = None) -> None:
        """Adds the globals that `code` uses, or those of `used`."""
        used = used or names_of(code)
        for name in used.globals:
            if name in names or name in used.stored_globals:
                self._add_global(names, name, "", used.attributes)

    def used(self, names: Names, codes: Mapping[CodeType, Any]) -> Iterator[tuple[Place, Any]]:
        """The places and keys that code with these names, which ran, may read or change."""
        for place in self.used_places(names, codes):
            for key, value in place.read().items():
                if _counts(place, key, names) or isinstance(value, _FUNCTIONS) and function_of(value, codes):
                    yield place, key

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Whatever changes inside is undone at the end. Iterators are not there, but stand-ins that refuse to be advanced."""
        self._before.append({place: place.read() for place in self._found})
        for place in self._found:
            self._hide_iterators(place)
        try:
            yield
        finally:
            for place, before in self._before.pop().items():
                place.write(before)

    def changes(self, names: Names, codes: Mapping[CodeType, Any]) -> list[Change]:
        """Inside `kept`: what has changed since its beginning where code with these names gets."""
        result = []
        for place in self.used_places(names, codes):
            if place.is_cache:
                continue
            before, now = self._before[-1][place], place.read()
            now = {key: self._hidden.get(id(value), (value,))[0] for key, value in now.items()}
            for key in {**before, **now}:
                pair = before.get(key, MISSING), now.get(key, MISSING)
                if not is_same(*pair) and _counts(place, key, names):
                    result.append(Change(place, key, *pair))
        return result

    def used_places(self, names: Names, codes: Mapping[CodeType, Any]) -> list[Place]:
        """The places that such code gets to."""
        return [place for node in self._used_nodes(names, codes) for place in node.places]

    def _used_nodes(self, names: Names, codes: Mapping[CodeType, Any]) -> Iterable[_Node]:
        nodes, todo = {self._root: None}, [self._root]
        for node in todo:
            for needed, below in node.below:
                is_used = needed in codes if isinstance(needed, CodeType) else needed is None or names.has(needed)
                if is_used and below not in nodes:
                    nodes[below] = None
                    todo.append(below)
        return nodes

    def functions(self, names: Names, codes: Mapping[CodeType, Any]) -> Iterator[tuple[types.FunctionType, str]]:
        """The functions whose code is one of `codes`, which code with these names gets to, and how messages name them."""
        for node in self._used_nodes(names, codes):
            function = function_of(node.value, codes) if isinstance(node.value, _FUNCTIONS) else None
            if function is not None:
                yield function, node.path

    def _add(self, node: _Node, place: Place) -> None:
        node.places.append(place)
        self._found.append(place)
        for before in self._before:
            before[place] = place.read()
        if self._before:
            self._hide_iterators(place)

    def _hide_iterators(self, place: Place) -> None:
        for key, value in place.read().items():
            hiding = stand_in(value, place.name_of(key))
            if hiding is not None:
                self._hidden[id(hiding)] = value, hiding
                place.set(key, hiding)

    def _add_global(self, names: dict[str, Any], name: str, path: str, attributes: set[str]) -> None:
        value = names.get(name, MISSING)
        if value is os.environ or value is os.getenv or value is os and attributes & {"environ", "getenv"}:
            if self._environment is None:
                self._environment = Place(os.environ, "os.environ")
                self._add(self._root, self._environment)
            return
        if isinstance(value, types.ModuleType):
            if is_users(value.__name__):
                for inner in attributes & vars(value).keys():
                    self._add_global(vars(value), inner, f"{path}{name}.", set())
            return
        place = self._globals.get((id(names), path))
        if place is None:
            place = self._globals[id(names), path] = Place(names, path, True, set())
            self._add(self._root, place)
        if name not in place.keys:
            place.keys.add(name)
            for before in self._before:
                before[place][name] = value
            if self._before:
                self._hide_iterators(place)
            self._visit(value, f"{path}{name}")

    def _visit(self, root: Any, path: str) -> None:
        """Adds the places below a value, the nearest first."""
        todo = collections.deque([(self._root, None, root, path)])
        while todo and len(self._nodes) < _MOST_NODES:
            above, needed, value, path = todo.popleft()
            node = self._nodes.get(id(value))
            if node is None:
                # What is remembered by its address has to stay alive: the node holds it.
                node = _Node(value, path)
                below = list(self._below(node, value, path))
                if not below and not node.places:
                    continue
                self._nodes[id(value)] = node
                todo.extend((node, *item) for item in below)
            above.below.append((needed, node))

    def _below(self, node: _Node, value: Any, path: str) -> Iterator[tuple[str | CodeType | None, Any, str]]:
        """Adds the places of `value` to its node; gives what they hold, with what leads there and its name."""
        kind = type(value)
        if isinstance(value, nn.Module):
            self._add(node, place := Place(vars(value), path, True, module=True))
            for key, item in place.read().items():
                yield _needed(key, item), item, place.name_of(key)
            for name, child in value._modules.items():
                yield None, child, f"{path}.{name}"
            yield from _classes(kind)
        elif isinstance(value, types.CellType):
            self._add(node, Place(value, path))
            yield None, content_of(value), path
        elif isinstance(value, CACHED):
            self._add(node, Place(value, path))
            yield None, value.__wrapped__, path
        elif isinstance(value, _FUNCTIONS):
            if isinstance(value, types.FunctionType) and is_own_code(value.__code__):
                if value.__defaults__:
                    self._add(node, Place(value, path, True))
                self._add(node, place := Place(vars(value), path, True))
                for key, item in place.read().items():
                    yield _needed(key, item), item, place.name_of(key)
            yield from _below_function(value, path)
        elif isinstance(value, tuple):
            for index, item in enumerate(value[:LONGEST]):
                yield None, item, f"{path}[{index}]"
        elif isinstance(value, (dict, list, collections.deque, set)):
            self._add(node, place := Place(value, path))
            for key, item in place.read().items():
                yield None, item, place.name_of(key)
        elif is_random(value):
            self._add(node, Place(value, path))
        elif isinstance(value, type):
            if is_users(value.__module__) and not issubclass(value, enum.Enum):
                self._add(node, place := Place(value, path, True))
                for key, item in place.read().items():
                    yield _needed(key, item), item, place.name_of(key)
        elif _is_object(value):
            holders = ([value] if slots_of(kind) else []) + ([vars(value)] if hasattr(value, "__dict__") else [])
            for holder in holders:
                self._add(node, place := Place(holder, path, True))
                for key, item in place.read().items():
                    yield _needed(key, item), item, place.name_of(key)
            yield from _classes(kind)


def _needed(key: str, item: Any) -> str | None:
    """What code has to name to get to an attribute. Functions tell by their code whether they are called, also where torch calls them."""
    return None if isinstance(item, _FUNCTIONS) else key


def _counts(place: Place, key: Any, names: Names) -> bool:
    return not place.named or place.keys is not None or names.has(key)


def _classes(kind: type) -> Iterator[tuple[None, type, str]]:
    for parent in kind.__mro__:
        if is_users(parent.__module__):
            yield None, parent, parent.__qualname__


def _below_function(value: Any, path: str) -> Iterator[tuple[str | CodeType | None, Any, str]]:
    if isinstance(value, functools.partial):
        yield None, value.func, path
        yield None, value.args, f"{path}.args"
        yield None, value.keywords, f"{path}.keywords"
        return
    if isinstance(value, types.MethodType):
        yield None, value.__self__, path
    if isinstance(value, property):
        yield None, value.fget, path
        return
    function = getattr(value, "__func__", value)
    if function is not value:
        yield None, function, path
        return
    if not isinstance(function, types.FunctionType) or not is_own_code(function.__code__):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            yield function.__code__, cell, name
    yield function.__code__, function.__defaults__, f"{path}.__defaults__"
    yield function.__code__, function.__kwdefaults__, f"{path}.__kwdefaults__"
    yield None, getattr(function, "__wrapped__", None), path


def function_of(value: Any, codes: Mapping[CodeType, Any] | None = None) -> types.FunctionType | None:
    """The function of a method or property; None where it is none, or its code is none of `codes`."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.partial):
        value = value.func
    value = (
        getattr(value, "__func__", value) if isinstance(value, (types.MethodType, staticmethod, classmethod)) else value
    )
    if not isinstance(value, types.FunctionType):
        return None
    return value if codes is None or value.__code__ in codes else None


def is_users(module: str | None) -> bool:
    """Whether a module of that name is neither torch's, nor Piper's, nor Python's own."""
    return (module or "torch").partition(".")[0] not in _FOREIGN


def _is_object(value: Any) -> bool:
    """Whether it is an instance of a user's class, or one that only holds names."""
    if isinstance(value, (torch.Tensor, enum.Enum, types.ModuleType)):
        return False
    return isinstance(value, _NAMESPACES) or is_object_of(type(value))


def is_object_of(kind: type) -> bool:
    """Whether it is a user's class, written in Python."""
    return bool(kind.__flags__ & _HEAP_TYPE and is_users(kind.__module__))
