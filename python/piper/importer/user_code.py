# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which code runs while a step is traced, which names it uses, and on which of its lines something changes."""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .capture import is_user_file

_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = tuple({sysconfig.get_paths()[name] + os.sep for name in ("purelib", "platlib")})
# Code of no file: of a prompt, a notebook, or `python -c`.
_TYPED = ("<stdin>", "<string>", "<ipython")
_MODULES = os.path.join(os.path.dirname(torch.__file__), "nn") + os.sep
# torch's functions that take user code which runs in the backward, to the local variable that holds it.
_TAKERS = {"apply": "cls", "register_hook": "hook", "register_full_backward_hook": "hook"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"}


@functools.lru_cache(4096)
def is_own_code(code: CodeType) -> bool:
    """Whether code is the user's, or a library's other than torch, Piper and Python's own."""
    name = code.co_filename
    if name.startswith(_TYPED):
        return True
    return is_user_file(name) and (not name.startswith(_STANDARD) or name.startswith(_INSTALLED))


def is_standard(code: CodeType) -> bool:
    """Whether code is of Python's own library."""
    name = code.co_filename
    return name.startswith((_STANDARD, "<frozen")) and not name.startswith(_INSTALLED)


def own_line() -> str:
    """ "file:line" of the own code that led here."""
    frame = sys._getframe(1)
    while frame is not None and not is_own_code(frame.f_code):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "unknown line"


def is_module_code(code: CodeType) -> bool:
    """Whether code is that of torch's modules, or of the functions that they call."""
    return code.co_filename.startswith(_MODULES)


@dataclass
class Names:
    """What code names: attributes it may read or set, those it reads, its globals, beginnings of names that it puts together, keys that it
    reads, and all strings."""

    attributes: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    stored_globals: set[str] = field(default_factory=set)
    beginnings: set[str] = field(default_factory=set)
    subscripts: set[Any] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)

    def add(self, other: Names) -> None:
        """Takes in the names of further code."""
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine |= theirs

    def has(self, attribute: object) -> bool:
        """Whether the code may use an attribute of that name."""
        return attribute in self.attributes or self._put_together(attribute)

    def reads(self, attribute: object) -> bool:
        """Whether the code may read it, and not only set it."""
        return attribute in self.loaded or self._put_together(attribute)

    def reads_item(self, key: object) -> bool:
        """Whether the code may read a dict's value of that key."""
        return bool(self.loaded & {"values", "items", "get", "pop"}) or key in self.subscripts

    def _put_together(self, name: object) -> bool:
        return bool(self.beginnings) and isinstance(name, str) and name.startswith(tuple(self.beginnings))


@functools.lru_cache(4096)
def names_of(code: CodeType, lines: frozenset[int] | None = None) -> Names:
    """The names on some lines, by default all, of one function's own code; what is nested in it runs by itself."""
    names = Names()
    formatted, before, line = False, None, code.co_firstlineno
    strings = set()
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno or line
        if lines is not None and line not in lines:
            before = instruction
            continue
        name, value = instruction.opname, instruction.argval
        if name in _GLOBALS:
            names.globals.add(value)
            if not name.startswith("LOAD"):
                names.stored_globals.add(value)
        elif name in _ATTRIBUTES:
            names.attributes.add(value)
            if name.startswith("LOAD"):
                names.loaded.add(value)
        elif name in ("BUILD_STRING", "FORMAT_VALUE"):
            formatted = True
        elif name == "LOAD_CONST" and isinstance(value, str):
            strings.add(value)
        elif name == "BINARY_SUBSCR" and before.opname == "LOAD_CONST" and isinstance(before.argval, (str, int)):
            names.subscripts.add(before.argval)
        before = instruction
    names.strings = strings
    if names.globals & {"getattr", "setattr", "hasattr", "vars"} or "__dict__" in names.attributes:
        names.attributes |= strings
        names.loaded |= strings
        if formatted:
            names.beginnings = {text for text in strings if text[:1].isidentifier()}
    return names


@dataclass
class Ran:
    """A function that ran: its globals, and the lines of it that did; None: all."""

    globals: dict[str, Any]
    lines: set[int] | None

    def names_of(self, code: CodeType) -> Names:
        """What those lines of its code name."""
        return names_of(code, None if self.lines is None else frozenset(self.lines))


class Executed(TorchFunctionMode):
    """Inside it, notes the code that runs, but for torch's own functions and what they call.

    `on_sight(code, globals)` is called before user code runs for the first time. `codes` holds what ran; `profile` is a profiling function for the same code.
    """

    def __init__(
        self,
        on_sight: Callable[[CodeType, dict[str, Any]], None] = lambda code, names: None,
        profile: Callable[[FrameType, str, Any], None] | None = None,
    ):
        super().__init__()
        self.codes: dict[CodeType, Ran] = {}
        self._on_sight = on_sight
        self._before = None
        # A profiler of the user's, of which there can be one, goes first.
        self._profile = profile if sys.getprofile() is None else None

    def names(self) -> Names:
        """The names that the code which ran uses."""
        names = Names()
        for code, ran in self.codes.items():
            if is_own_code(code):
                names.add(ran.names_of(code))
            elif is_module_code(code):
                # Torch's modules read their options; their globals are no state of the user's.
                names.add(Names(names_of(code).attributes))
        return names

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        self._set_profile(self._profile)
        return super().__enter__()

    def __exit__(self, *error):
        self._set_profile(None)
        sys.settrace(self._before)
        return super().__exit__(*error)

    def _set_profile(self, profile: Callable | None) -> None:
        if self._profile is not None:
            sys.setprofile(profile)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # Inside of torch's functions are thousands of calls, and nothing of the user's.
        tracer = sys.gettrace()
        sys.settrace(None)
        self._set_profile(None)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            sys.settrace(tracer)
            self._set_profile(self._profile)

    def _call(self, frame: FrameType, event: str, _arg: Any) -> Any:
        code = frame.f_code
        ran = self._note(code, frame.f_globals, {frame.f_lineno})
        if is_own_code(code):
            return self._line_tracer(ran.lines) if ran.lines is not None else None
        if code.co_name in _TAKERS:
            for function in _functions_of(frame.f_locals.get(_TAKERS[code.co_name])):
                self._note(function.__code__, function.__globals__, None).lines = None
        return None

    def _line_tracer(self, lines: set[int]) -> Callable:
        def trace(frame: FrameType, event: str, _arg: Any) -> Callable:
            if event == "line":
                lines.add(frame.f_lineno)
            return trace

        return trace

    def _note(self, code: CodeType, names: dict[str, Any], lines: set[int] | None) -> Ran:
        ran = self.codes.get(code)
        if ran is None:
            ran = self.codes[code] = Ran(names, lines)
            if is_own_code(code):
                self._on_sight(code, names)
        return ran


def _functions_of(taken: Any) -> Iterator[Any]:
    """The functions that run in the backward, of a hook or of a class of autograd functions."""
    if isinstance(taken, type):
        found = [vars(kind).get(name) for kind in taken.__mro__ for name in ("backward", "vjp", "setup_context")]
    else:
        found = [taken]
    for function in found:
        function = getattr(function, "__func__", function)
        if hasattr(function, "__code__"):
            yield function


class Watchpoints(Executed):
    """Inside it, finds the lines of user code on which values change. `probes` give something to compare by `==`, and never raise.

    `lines` holds "file:line" of each probe that changed, by its number.
    """

    def __init__(self, probes: Sequence[Callable[[], Any]]):
        super().__init__()
        self._probes = probes
        self._values = [probe() for probe in probes]
        self._last = ""
        self.lines: dict[int, str] = {}

    def __exit__(self, *error):
        self._look()
        return super().__exit__(*error)

    def _call(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not is_own_code(frame.f_code):
            return None
        # The line that ran last is what changed a value, if one has changed.
        self._look()
        while frame is not None and (event == "return" or not is_own_code(frame.f_code)):
            frame, event = frame.f_back, ""
        if frame is not None:
            self._last = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return self._call

    def _look(self) -> None:
        for index, probe in enumerate(self._probes):
            if index not in self.lines and probe() != self._values[index]:
                self.lines[index] = self._last or "unknown line"
