# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where in the user's code something happens, for messages: a line, and of what torch's own modules do also which of them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import NamedTuple

import torch
from torch import nn

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
_LIBRARY_FOLDERS = (_TORCH, _PACKAGE)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_SITE = (_STANDARD + "site-packages" + os.sep, _STANDARD + "dist-packages" + os.sep)
_EXAMPLES = _PACKAGE + "examples" + os.sep
_MODULES = os.path.join(_TORCH, "nn", "modules") + os.sep
#: Piper's functions that call the loss and the model: what called them is no line of these.
_CALLS_LOSS, _CALLS_MODEL = "call_loss", "_call"

#: The model among the parts of a step.
MODEL = "model"
_names: dict[nn.Module, str] = {}


class Place(NamedTuple):
    """A line of user code, or what stands for one; and the module of torch that worked for it, or ""."""

    line: str
    module: str = ""

    def __str__(self) -> str:
        return f"{self.line}, in {self.module}" if self.module else self.line


def is_user_file(name: str) -> bool:
    """Whether a source file is neither Piper's, nor torch's, nor of Python's own library."""
    if name.startswith(_EXAMPLES):
        return True
    return not name.startswith((*_LIBRARY_FOLDERS, "<")) and (name.startswith(_SITE) or not name.startswith(_STANDARD))


@contextlib.contextmanager
def naming(children: Mapping[str, nn.Module]) -> Iterator[None]:
    """Inside it places have the names of modules: those of the model are as in the user's model."""
    global _names
    before, _names = _names, {}
    for prefix, child in children.items():
        for name, part in child.named_modules(prefix="" if prefix == MODEL else prefix):
            _names.setdefault(part, name)
    try:
        yield
    finally:
        _names = before


def user_line() -> str:
    """The line of user code that led here, "file:line"; where there is none the module of torch or the loss that did; "" if there is none of these."""
    return _place(_callers(sys._getframe(2))).line


def user_place() -> Place:
    """`user_line`, with the module."""
    return _place(_callers(sys._getframe(2)))


def last_user_place(traceback: TracebackType | None) -> Place:
    """The place in user code that an error came from."""
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    found = _place(reversed(frames))
    return found if found.line else Place("unknown line")


def last_user_line(traceback: TracebackType | None) -> str:
    """`last_user_place` as text."""
    return str(last_user_place(traceback))


def place_of(function: Callable, kind: str) -> str:
    """The line of a function or module of the user, as "file:line"; of others their name, after `kind`."""
    while True:
        function = inspect.unwrap(function)
        if not isinstance(function, functools.partial):
            break
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None and isinstance(function, nn.Module):
        code = getattr(type(function).forward, "__code__", None)
    if code is None and callable(function):
        code = getattr(type(function).__call__, "__code__", None)
    if code is not None and (
        not code.co_filename.startswith(_LIBRARY_FOLDERS) or code.co_filename.startswith(_EXAMPLES)
    ):
        return f"{code.co_filename}:{code.co_firstlineno}"
    return f"{kind} {_name(function)}"


def _name(function: Callable) -> str:
    named = function if hasattr(function, "__name__") else type(function)
    home = getattr(named, "__module__", None) or ""
    # Where users find torch's modules.
    home = "torch.nn" if home.startswith("torch.nn.modules.") else home
    return ".".join(filter(None, (home, named.__name__)))


def _callers(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _place(frames: Iterable[tuple[FrameType, int]]) -> Place:
    """By frames with their lines, from within."""
    module = None
    for frame, number in frames:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if is_user_file(file):
            return Place(f"{file}:{number}", _described(module))
        if name == "forward" and module is None and file.startswith(_MODULES):
            module = frame.f_locals.get("self")
        elif name == _CALLS_LOSS and file.startswith(_PACKAGE):
            return Place(place_of(frame.f_locals["loss_fn"], "loss_fn"))
        elif name == _CALLS_MODEL and file.startswith(_PACKAGE) and "model" in frame.f_locals:
            return Place(_described(module if module is not None else frame.f_locals["model"]))
    return Place("")


def _described(module: nn.Module | None) -> str:
    if module is None:
        return ""
    name = _names.get(module)
    kind = type(module).__name__
    return kind if name is None else f"'{name}' ({kind})" if name else f"the model ({kind})"
