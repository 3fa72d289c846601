# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs of a model that is too large to be run: numbers of the right shapes, which are as good as any to see whether a loss divides."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..importer.capture import fake_call
from ..importer.inputs import Batch
from .losses import NotTriedError
from .models import Outputs
from .rows_of_outputs import layouts, leaves, replaced


def made_up(model: nn.Module, whole: Batch, parts: Sequence[Batch], sizes: Sequence[int], most: int) -> Outputs:
    """What the model gives for the whole and for parts, by shapes alone.

    Raises NotTriedError where some of it are no floating numbers, which can't be made up, or are more than `most`.
    """
    output, *others = [_shapes(model, batch) for batch in (whole, *parts)]
    tensors = {path: value for path, value in leaves(output).items() if isinstance(value, torch.Tensor)}
    if any(not value.is_floating_point() for value in tensors.values()):
        raise NotTriedError("the model is too large to be run for it, and its outputs can't be made up")
    found = {}
    for path, value in tensors.items():
        of_parts = [leaves(other).get(path) for other in others]
        known = all(isinstance(part, torch.Tensor) for part in of_parts)
        found[path] = layouts(value, of_parts, sizes) if known else []
    told = all(found.values())
    generator = torch.Generator().manual_seed(4)
    if sum(value.numel() for value in tensors.values()) > most:
        raise NotTriedError("the model is too large to be run for it, and so are its outputs")
    made = replaced(output, lambda path, value: _made(value, generator) if path in tensors else value)
    # Infinitely apart: no number tells where rows lie.
    return Outputs(made, others, sizes, {path: way[0] for path, way in found.items() if way}, told, float("inf"))


def _made(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(tuple(like.shape), generator=generator, dtype=torch.float64).to(like.dtype)


def _shapes(model: nn.Module, batch: Batch) -> Any:
    given: list[Any] = []
    handle = model.register_forward_hook(lambda *call: given.append(call[2]))
    try:
        fake_call(model, batch.args, batch.kwargs, contextlib.nullcontext())
    finally:
        handle.remove()
    return given[-1]
