# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether rows meet in the model: its outputs and gradients on the whole against those on parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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
        constants: tensors that are the same bits for the whole and for all parts: made of parameters alone, as far as it shows.
    """

    whole: Any
    parts: Sequence[Any]
    sizes: Sequence[int]
    layouts: Mapping[str, Layout]
    told: bool
    apart: float
    constants: frozenset[str] = frozenset()

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {path: value for path, value in leaves(self.whole).items() if isinstance(value, torch.Tensor)}


def outputs(whole: Any, parts: Sequence[Any], sizes: Sequence[int]) -> Outputs:
    """Lays the outputs of parts beside that of the whole."""
    found, told, apart, constants = {}, True, 0.0, set()
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
        if layout is not None and layout.dim is None and all(torch.equal(value, other) for other in others):
            constants.add(path)
    return Outputs(whole, parts, sizes, found, told, apart, frozenset(constants))


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
    one, two = (gradients_of(sum(values), subject.parameters, keep=True) for values in (whole, parts))
    size = distance(one, two)
    return Difference("gradient", size) if size else None
