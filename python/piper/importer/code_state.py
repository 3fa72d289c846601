# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code that a captured step has run, and the modules that it ran in: whether they still are what they were."""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch
from torch import nn

from .places import MISSING, function_of
from .user_code import MODULE_FILES, Ran, is_own_code, names_of

# The tables of hooks that torch calls in a call of a module, with what messages call them.
_HOOKS = {
    "_forward_pre_hooks": "forward pre-hooks",
    "_forward_hooks": "forward hooks",
    "_backward_pre_hooks": "backward pre-hooks",
    "_backward_hooks": "backward hooks",
}
_OF_GRADIENTS = operator.attrgetter("_backward_hooks"), operator.attrgetter("_post_accumulate_grad_hooks")
_GLOBAL_HOOKS = {f"_global{name}": f"global {text}" for name, text in _HOOKS.items()}
# torch, torch.nn and torch.nn.functional, as user code names them.
_DEEPEST = 3


class CodeState:
    """What code a step consists of.

    roots: model and loss by name. codes: the code that ran. functions: the user's, with names for messages.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        codes: Mapping[CodeType, Ran],
        functions: Iterable[tuple[types.FunctionType, str]],
    ):
        modules = {name: root for name, root in roots.items() if isinstance(root, nn.Module)}
        # The model itself is not kept alive.
        self._roots = [(name, weakref.ref(root), type(root)) for name, root in modules.items()]
        parts = [part for root in modules.values() for part in root.modules()]
        inner = [part for part in parts if part not in modules.values()]
        self._kinds = inner, [type(part) for part in inner]
        self._forwards = [(kind, kind.forward) for kind in dict.fromkeys(map(type, parts))]
        self._parameters = [parameter for part in parts for parameter in part.parameters(recurse=False)]
        self._children = [(part._modules, tuple(part._modules.values())) for part in parts if part._modules]
        tables = [table for part in parts for table in _tables(part)] + list(_global_tables())
        self._without_hooks = [table for table in tables if not table]
        self._with_hooks = [(table, tuple(table.values())) for table in tables if table]
        self._codes = [(f, f.__code__, name) for f, name in functions if f.__code__ in codes]
        self._functions = list(dict.fromkeys(_functions_of_torch(codes)))

    def is_same(self) -> bool:
        """Asked in every step."""
        parts, kinds = self._kinds
        if any(self._without_hooks) or list(map(type, parts)) != kinds:
            return False
        for _, reference, kind in self._roots:
            if (root := reference()) is not None and type(root) is not kind:
                return False
        for kind, forward in self._forwards:
            if kind.forward is not forward:
                return False
        if any(any(map(hooks, self._parameters)) for hooks in _OF_GRADIENTS):
            return False
        for table, values in (*self._children, *self._with_hooks):
            if tuple(table.values()) != values:
                return False
        for function, code, _ in self._codes:
            if function.__code__ is not code:
                return False
        for module, name, function in self._functions:
            if getattr(module, name, None) is not function:
                return False
        return True

    def _named(self) -> Iterator[tuple[str, nn.Module]]:
        """The modules as they are now, with their names."""
        for name, reference, _ in self._roots:
            if (root := reference()) is not None:
                for inner, part in root.named_modules(remove_duplicate=False):
                    yield f"{name}.{inner}".rstrip("."), part

    def changes(self) -> Iterator[tuple[str, str, bool]]:
        """What is no more what it was: its name, a sentence, and whether the step is another one, whatever it computes."""
        before = {id(root): kind for root, kind in zip(*self._kinds, strict=True)}
        before |= {id(reference()): kind for _, reference, kind in self._roots}
        children = {id(table): values for table, values in self._children}
        hooks = {id(table): values for table, values in self._with_hooks}
        for kind, forward in self._forwards:
            if kind.forward is not forward:
                yield f"{kind.__qualname__}.forward", f"'{kind.__qualname__}.forward' is another function now", False
        for name, part in self._named():
            for key, parameter in part._parameters.items():
                if parameter is not None and any(hooks(parameter) for hooks in _OF_GRADIENTS):
                    yield f"{name}.{key}", f"'{name}.{key}' has a hook on its gradient now", True
            if id(part) in before and type(part) is not before[id(part)]:
                yield name, f"'{name}' is of another class now", True
            for key, child in zip(part._modules, children.get(id(part._modules), ()), strict=False):
                if part._modules[key] is not child:
                    yield f"{name}.{key}", f"'{name}.{key}' is another module now", True
            if len(part._modules) != len(children.get(id(part._modules), ())):
                yield name, f"'{name}' has other parts now", True
            for table, what in zip(_tables(part), _HOOKS.values(), strict=True):
                if tuple(table.values()) != hooks.get(id(table), ()):
                    yield name, f"'{name}' has other {what} now", False
        for table, what in zip(_global_tables(), _GLOBAL_HOOKS.values(), strict=True):
            if tuple(table.values()) != hooks.get(id(table), ()):
                yield what, f"there are other {what} of modules now", False
        for function, code, name in self._codes:
            if function.__code__ is not code:
                yield name, f"'{name}' has other code now", False
        for module, name, function in self._functions:
            if getattr(module, name, None) is not function:
                full = f"{module.__name__}.{name}"
                yield full, f"'{full}' is another function now", False


def has_run(value: Any, codes: Mapping[CodeType, Ran]) -> bool:
    """Whether it is a function whose code is among those that ran."""
    function = function_of(value)
    return function is not None and function.__code__ in codes


def _tables(part: nn.Module) -> list[dict]:
    return [getattr(part, name) for name in _HOOKS]


def _global_tables() -> Iterable[dict]:
    return [getattr(torch.nn.modules.module, name) for name in _GLOBAL_HOOKS]


def _functions_of_torch(codes: Mapping[CodeType, Ran]) -> Iterator[tuple[types.ModuleType, str, Callable]]:
    """Functions of torch that code which ran names through their modules, which may be patched: the module, the function's name, and it."""
    for code, item in codes.items():
        if not is_own_code(code) and not code.co_filename.startswith(MODULE_FILES):
            continue
        names = item.names_of(code) if is_own_code(code) else names_of(code)
        for name in names.globals:
            value = item.globals.get(name, MISSING)
            if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == "torch":
                yield from _named_in(value, names.attributes, _DEEPEST)


def _named_in(
    module: types.ModuleType, attributes: set[str], depth: int
) -> Iterator[tuple[types.ModuleType, str, Callable]]:
    inside = vars(module)
    for name in attributes & inside.keys():
        value = inside[name]
        if isinstance(value, types.ModuleType):
            if depth > 1 and value.__name__.startswith("torch"):
                yield from _named_in(value, attributes, depth - 1)
        elif isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            yield module, name, value
