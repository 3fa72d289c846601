# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where rows meet in a model: the operations and the module whose results differ in whole and parts, though what they read does not."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..importer.capture import is_user_file, tree_leaves
from ..importer.inputs import Batch
from . import subject as subjects
from .differences import distance
from .models import matching


class Operations(TorchDispatchMode):
    """Notes each operation: its name, the user's line, which earlier ones gave what it reads, and copies of what it gives."""

    def __init__(self):
        super().__init__()
        self.found: list[tuple[str, str, list[int], list[torch.Tensor]]] = []
        # Tensors stay alive, so that an id means one tensor.
        self._makers: dict[int, tuple[torch.Tensor, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        read = [value for value in tree_leaves([args, kwargs]) if isinstance(value, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        # -1: a parameter or an input, the same in whole and parts.
        makers = [self._makers.get(id(value), (value, -1))[1] for value in read]
        made = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        for value in made:
            self._makers[id(value)] = (value, len(self.found))
        self.found.append((str(func), _line_in_model(), makers, [value.detach().clone() for value in made]))
        return result


def _line_in_model() -> str:
    """The line of user code that runs inside the model; "" for what a library's module does by itself."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != subjects.__file__:
        if is_user_file(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _meeting_lines(whole: Operations, parts: Sequence[Operations], sizes: Sequence[int], most: float) -> list[str]:
    """The lines of operations whose results differ, though what they read does not; of those that read nothing only where there are no others."""
    differing: set[int] = set()
    lines: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for index, (name, line, makers, results) in enumerate(whole.found):
        others = [part.found[index] if index < len(part.found) else None for part in parts]
        if any(other is None or other[0] != name for other in others):
            break
        if _apart(results, [other[3] for other in others], sizes) > most:
            if line and not any(maker in differing for maker in makers):
                lines[bool(makers)][line] = None
            differing.add(index)
    return list(lines[True] or lines[False])


class Calls:
    """Notes what modules are called with and what they give, as often as they are called, innermost first."""

    def __init__(self, model: nn.Module):
        self._names = {part: name for name, part in model.named_modules()}
        self.found: list[tuple[str, nn.Module, list, list]] = []
        self._handles = [part.register_forward_hook(self._note, with_kwargs=True) for part in self._names]

    def _note(self, part: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self.found.append((self._names[part], part, _copies((args, kwargs)), _copies(result)))

    def take(self) -> list[tuple[str, nn.Module, list, list]]:
        found, self.found = self.found, []
        return found

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()


def _copies(values: Any) -> list[torch.Tensor]:
    return [value.detach().clone() for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def meeting_place(subject: subjects.Subject, batches: Sequence[Batch], sizes: Sequence[int], most: float) -> str:
    """The lines, and the first module whose results differ where what it was called with does not, inner ones before outer ones.

    batches: the whole, then its parts of `sizes` rows.
    """
    (whole, *parts), (operations, *others) = _calls(subject, batches), [_operations(subject, b) for b in batches]
    lines = _meeting_lines(operations, others, sizes, most)
    name, module = _meeting_module(whole, parts, sizes, most) or ("", subject.model)
    return described(name, module, lines)


def _calls(subject: subjects.Subject, batches: Sequence[Batch]) -> list[list]:
    calls = Calls(subject.model)
    try:
        found = []
        for batch in batches:
            subject.output(_own(batch))
            found.append(calls.take())
        return found
    finally:
        calls.close()


def _operations(subject: subjects.Subject, batch: Batch) -> Operations:
    batch = _own(batch)
    with Operations() as operations:
        subject.output(batch)
    return operations


def _own(batch: Batch) -> Batch:
    """Tensors of its own, which the model may write to."""
    return batch.map(lambda _, value: value.clone() if isinstance(value, torch.Tensor) else value)


def _meeting_module(
    whole: list, parts: Sequence[list], sizes: Sequence[int], most: float
) -> tuple[str, nn.Module] | None:
    for index, (name, module, given, results) in enumerate(whole):
        others = [part[index] if index < len(part) else None for part in parts]
        if any(other is None or other[0] != name for other in others):
            return None
        if _apart(given, [other[2] for other in others], sizes) > most:
            continue
        if _apart(results, [other[3] for other in others], sizes) > most:
            return name, module
    return None


def _apart(whole: list[torch.Tensor], parts: list[list[torch.Tensor]], sizes: Sequence[int]) -> float:
    if any(len(part) != len(whole) for part in parts):
        return float("inf")
    off = 0.0
    for value, *others in zip(whole, *parts, strict=True):
        layout, gap = matching(value, others, sizes)
        if layout is not None and layout.dim is None:
            gap = max((distance([value], [other]) for other in others), default=0.0)
        off = max(off, gap)
    return off


def described(name: str, module: nn.Module, lines: Sequence[str] = ()) -> str:
    """A module with its class and the lines in it, or the line of its forward."""
    where = f"module '{name}'" if name else "the model"
    if lines:
        return f"{', '.join(lines[:4])} in {where} ({type(module).__name__})"
    line = line_of(type(module).forward)
    return f"{where} ({type(module).__name__}{', ' + line if line else ''})"


def line_of(function: Any) -> str:
    """Where a function of the user's is written, "file:line"; "" for a library's."""
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None and is_user_file(code.co_filename) else ""
