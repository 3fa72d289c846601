# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the rows of the batch are in what a model gives: told by how its shape changes with their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..importer.inputs import Batch


@dataclass(frozen=True)
class Layout:
    """The rows along one dimension of a tensor; None: it has none, and every part sees all of it.

    `outer`: where the dimension counts several elements of each row, whether those of one row stand together.
    """

    dim: int | None
    outer: bool = True

    def of_part(self, value: torch.Tensor, start: int, count: int, rows: int) -> torch.Tensor:
        """The elements of rows start to start + count, as a model's own output of these rows lies in memory."""
        if self.dim is None:
            return value.clone()
        each = value.shape[self.dim] // rows
        if self.outer:
            return value.narrow(self.dim, start * each, count * each).clone(memory_format=torch.contiguous_format)
        split = value.unflatten(self.dim, (each, rows)).narrow(self.dim + 1, start, count)
        return split.flatten(self.dim, self.dim + 1).clone(memory_format=torch.contiguous_format)


def layouts(whole: torch.Tensor, parts: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[Layout]:
    """The ways in which rows may lie in `whole`, given what parts of `sizes` rows look like; none where rows have met in its shape."""
    shape, rows = tuple(whole.shape), sum(sizes)
    if any(part.dim() != len(shape) or part.dtype != whole.dtype for part in parts):
        return []
    changed = {dim for part in parts for dim in range(len(shape)) if part.shape[dim] != shape[dim]}
    if not changed:
        return [Layout(None)]
    (dim, *others) = changed
    fits = all(part.shape[dim] * rows == shape[dim] * size for part, size in zip(parts, sizes, strict=True))
    if others or not fits or shape[dim] % rows:
        return []
    return [Layout(dim)] if shape[dim] == rows else [Layout(dim, True), Layout(dim, False)]


def leaves(output: Any) -> dict[str, Any]:
    """The leaves of an output by their paths."""
    found: dict[str, Any] = {}
    Batch((), {}, output).map(lambda path, value: found.setdefault(_path(path), value))
    return found


def replaced(output: Any, leaf: Callable[[str, Any], Any]) -> Any:
    """An output of the same structure, each leaf replaced by `leaf(path, value)`."""
    return Batch((), {}, output).map(lambda path, value: leaf(_path(path), value)).target


def _path(path: str) -> str:
    return "output" + path.removeprefix("target")
