# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code that a captured step has run: functions and methods, parts and hooks of modules, what names of torch stand for; and whether they still are what they were."""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from .changed import Changed, Entries, becomes
from .place import MISSING
from .places import function_of, is_users
from .user_code import Ran, is_module_code, is_own_code, names_of

_FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_PARTS = "_modules"
_OF_FUNCTIONS = {
    "code": operator.attrgetter("__code__"),
    "default arguments": operator.attrgetter("__defaults__"),
    "default keyword arguments": operator.attrgetter("__kwdefaults__"),
}


class RanCode:
    """The code of one step as it is now.

    Args:
        roots: the model and the loss by name; None is one that is gone.
        codes: what ran.
        functions: those of the user's whose code ran, with their names.
        backward: whether autograd ran, which calls hooks.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        codes: Mapping[CodeType, Ran],
        functions: Iterable[tuple[types.FunctionType, str]],
        backward: bool,
    ):
        named = dict(functions)
        self._functions, self._function_names = list(named), list(named.values())
        self._own = [(get, list(map(get, self._functions)), what) for what, get in _OF_FUNCTIONS.items()]
        self._tables = _Tables(_FORWARD_HOOKS + (_BACKWARD_HOOKS if backward else ()))
        self._named, self._methods = Entries(dict.get), Entries(types.MappingProxyType.get)
        for root, module in roots.items():
            for name, part in module.named_modules() if isinstance(module, nn.Module) else ():
                self._tables.add(part, f"{root}.{name}" if name else root)
        kinds = {type(part) for module in roots.values() if isinstance(module, nn.Module) for part in module.modules()}
        for kind in kinds:
            self._add_methods(kind, codes)
        self._add_named(codes)

    def _add_methods(self, kind: type, codes: Mapping[CodeType, Ran]) -> None:
        """Each method that ran, on all classes that may have one of that name before it."""
        parents = kind.__mro__[: kind.__mro__.index(nn.Module)]
        names = {name for parent in parents for name, value in vars(parent).items() if function_of(value, codes)}
        for parent in parents:
            for name in {*names, "forward"}:
                value = vars(parent).get(name, MISSING)
                self._methods.add(vars(parent), name, value, f"{parent.__qualname__}.{name}")

    def _add_named(self, codes: Mapping[CodeType, Ran]) -> None:
        """What code names of torch's and Python's modules: F.gelu, torch.exp, and methods of tensors."""
        methods: set[str] = set()
        seen: set[tuple[int, str]] = set()
        for code, ran in codes.items():
            if not (own := is_own_code(code)) and not is_module_code(code):
                continue
            names = ran.names_of(code) if own else names_of(code)
            if own:
                methods |= {name for name in names.loaded if not name.startswith("__")}
            for holder, path, key, value in _foreign(ran.globals, names.globals, names.loaded):
                if (id(holder), key) not in seen:
                    seen.add((id(holder), key))
                    self._named.add(holder, key, value, f"{path}.{key}")
        for kind in torch.Tensor.__mro__[:-1]:
            for name in methods:
                if name in vars(kind) or hasattr(torch.Tensor, name):
                    self._methods.add(vars(kind), name, vars(kind).get(name, MISSING), f"torch.Tensor.{name}")

    def is_same(self) -> bool:
        """Whether it is the same code, and not only equal code. Every step asks."""
        for get, own, _ in self._own:
            if not all(map(operator.is_, map(get, self._functions), own)):
                return False
        return self._named.is_same() and self._methods.is_same() and self._tables.is_same()

    def changes(self) -> list[Changed]:
        """What is not what it was."""
        found = [
            Changed(name, before, now, text=f"the {what} of '{name}' {'have' if what != 'code' else 'has'} changed")
            for get, own, what in self._own
            for function, name, before in zip(self._functions, self._function_names, own, strict=True)
            if (now := get(function)) is not before
        ]
        for name, _, before, now in [*self._named.changed(), *self._methods.changed()]:
            found.append(Changed(name, before, now, text=f"'{name}' {becomes(before, now)}"))
        return found + list(self._tables.changes())


class _Tables:
    """Parts and hooks of modules."""

    def __init__(self, hooks: tuple[str, ...]):
        self._hooks = hooks
        # Nearly all are empty, which is told fastest.
        self._empty: list[dict[Any, Any]] = []
        self._empty_names: list[str] = []
        self._filled: list[dict[Any, Any]] = []
        self._filled_names: list[str] = []
        self._contents: list[dict[Any, Any]] = []
        self._all: list[Any] = []
        for hook in hooks:
            self._add(getattr(torch_module, f"_global{hook}"), f"torch.nn.modules.module._global{hook}")

    def add(self, part: nn.Module, name: str) -> None:
        """Takes those of one module."""
        own = vars(part)
        for table in (*self._hooks, _PARTS):
            if table in own:
                self._add(own[table], f"{name}.{table}")

    def _add(self, table: dict[Any, Any], name: str) -> None:
        if not table:
            self._empty.append(table)
            self._empty_names.append(name)
            return
        self._filled.append(table)
        self._filled_names.append(name)
        self._contents.append(dict(table))
        self._all += table.values()

    def is_same(self) -> bool:
        if any(self._empty) or sum(map(len, self._filled)) != len(self._all):
            return False
        return all(map(operator.is_, itertools.chain.from_iterable(map(dict.values, self._filled)), self._all))

    def changes(self) -> Iterator[Changed]:
        for table, name in zip(self._empty, self._empty_names, strict=True):
            yield from _changes_of(name, {}, table)
        for table, name, content in zip(self._filled, self._filled_names, self._contents, strict=True):
            yield from _changes_of(name, content, table)


def _changes_of(name: str, before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[Changed]:
    owner, _, table = name.rpartition(".")
    for key in {**before, **now}:
        old, new = before.get(key, MISSING), now.get(key, MISSING)
        if old is new:
            continue
        if table == _PARTS:
            yield Changed(f"{owner}.{key}", old, new, text=f"'{owner}.{key}' {becomes(old, new)}", part=True)
        else:
            done = "added to" if old is MISSING else "removed from"
            kind = table.removeprefix("_global").strip("_").removesuffix("s").replace("_", " ")
            yield Changed(name, old, new, text=f"a {kind} was {done} '{owner}'")


def _foreign(names: dict[str, Any], used: Iterable[str], attributes: set[str]) -> Iterator[tuple[dict, str, str, Any]]:
    """What code with these globals may call of modules that are not the user's: the holder, its name, the key and the value."""
    todo = [(value, name) for name in used if isinstance(value := names.get(name), types.ModuleType)]
    seen = set()
    for module, path in todo:
        if id(module) in seen or is_users(module.__name__):
            continue
        seen.add(id(module))
        for key in attributes & vars(module).keys():
            value = vars(module)[key]
            if isinstance(value, types.ModuleType):
                todo.append((value, f"{path}.{key}"))
            elif callable(value):
                yield vars(module), path, key, value
