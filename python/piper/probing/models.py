# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether rows meet in the model: its outputs and gradients on the whole against those on parts, and the module where they first differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..importer.capture import is_user_file, tree_leaves
from .differences import Difference, distance
from .losses import gradients_of
from .rows_of_outputs import Layout, layouts, leaves
from .subject import Subject


@dataclass(frozen=True)
class Outputs:
    """What the model gave for the whole and for parts of `sizes` rows.

    Attributes:
        whole, parts: its outputs, with their graphs.
        layouts: where each tensor has its rows, by path; if that could be told for all (`told`).
        apart: the largest difference between a tensor of the whole and the rows put together.
    """

    whole: Any
    parts: Sequence[Any]
    sizes: Sequence[int]
    layouts: Mapping[str, Layout]
    told: bool
    apart: float

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {path: value for path, value in leaves(self.whole).items() if isinstance(value, torch.Tensor)}


def outputs(whole: Any, parts: Sequence[Any], sizes: Sequence[int]) -> Outputs:
    """Lays the outputs of parts beside that of the whole."""
    found, told, apart = {}, True, 0.0
    of_parts = [leaves(part) for part in parts]
    for path, value in leaves(whole).items():
        if not isinstance(value, torch.Tensor):
            continue
        others = [part.get(path) for part in of_parts]
        known = all(isinstance(other, torch.Tensor) for other in others)
        layout, off = matching(value, others, sizes) if known else (None, float("inf"))
        if layout is None:
            told = False
        else:
            found[path] = layout
        apart = max(apart, off)
    return Outputs(whole, parts, sizes, found, told, apart)


def matching(whole: torch.Tensor, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> tuple[Layout | None, float]:
    """The layout under which the parts are most like the whole, and how far they are off then; 0 where no rows can be told."""
    best: tuple[Layout | None, float] = (None, float("inf"))
    for layout in layouts(whole, parts, sizes):
        if layout.dim is None:
            return layout, 0.0
        start, pieces = 0, []
        for count in sizes:
            pieces.append(layout.of_part(whole.detach(), start, count, sum(sizes)))
            start += count
        off = distance(pieces, parts) if whole.numel() else 0.0
        if best[0] is None or off < best[1]:
            best = (layout, off)
    return best


def gradient_difference(subject: Subject, found: Outputs) -> Difference | None:
    """How far gradients of parameters from parts are off those of the whole, where each row of the outputs pulls in a direction of its own."""
    whole, parts, start = [], [], 0
    for path, layout in found.layouts.items():
        value = found.tensors[path]
        if layout.dim is None or not value.requires_grad:
            continue
        generator = torch.Generator().manual_seed(len(whole))
        pull = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype)
        whole.append((value * pull).sum())
        start = 0
        for count, part in zip(found.sizes, found.parts, strict=True):
            parts.append((leaves(part)[path] * layout.of_part(pull, start, count, sum(found.sizes))).sum())
            start += count
    if not whole:
        return None
    one, two = (gradients_of(sum(values), subject.parameters) for values in (whole, parts))
    size = distance(one, two)
    return Difference("gradient", size) if size else None


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


def meeting_module(
    subject: Subject, run_whole: Callable[[], Any], run_parts: Sequence[Callable[[], Any]], sizes: Sequence[int], most: float
) -> str:
    """The first module whose results differ where what it was called with does not, inner ones before outer ones, with the line of its forward."""
    calls = Calls(subject.model)
    try:
        run_whole()
        whole = calls.take()
        parts = []
        for run in run_parts:
            run()
            parts.append(calls.take())
    finally:
        calls.close()
    if any([name for name, *_ in part] != [name for name, *_ in whole] for part in parts):
        return _described("", subject.model)
    for index, (name, module, given, results) in enumerate(whole):
        others = [part[index] for part in parts]
        if _apart(given, [other[2] for other in others], sizes) > most:
            continue
        if _apart(results, [other[3] for other in others], sizes) > most:
            return _described(name, module)
    return _described("", subject.model)


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


def _described(name: str, module: nn.Module) -> str:
    where = f"module '{name}'" if name else "the model"
    line = line_of(type(module).forward)
    return f"{where} ({type(module).__name__}{', ' + line if line else ''})"


def line_of(function: Any) -> str:
    """Where a function of the user's is written, "file:line"; "" for a library's."""
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None and is_user_file(code.co_filename) else ""
