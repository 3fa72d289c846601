# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds operations that mix the rows of a batch, so that parts of it computed apart give something else than the whole.

The step runs twice on shapes alone, with two numbers of rows. What treats every row by itself has results that grow as the rows do; a sum over the rows has
results that don't, products of rows with rows have results that grow faster. What mixes rows and keeps shapes (a softmax over dim 0)
numbers find (`piper.probing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .capture import tree_leaves, user_line

#: Named by their own rule (coupling.py), which knows whether they compute batch statistics.
BATCH_NORM = "batch_norm"
#: Tensors made after the dtype and device of another.
_OF_METADATA = "aten.new_"


@dataclass(frozen=True)
class _Call:
    name: str
    source: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    in_loss: bool


class Recorder(TorchDispatchMode):
    """Notes the sizes of what each operation reads and gives, in elements. `calls` has them in order."""

    def __init__(self):
        super().__init__()
        self.calls: list[_Call] = []
        self._in_loss = False

    @contextlib.contextmanager
    def loss(self) -> Iterator[None]:
        """Inside it operations belong to the loss, whose value is a sum over the rows."""
        self._in_loss = True
        try:
            yield
        finally:
            self._in_loss = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = (_elements([args, kwargs]), _elements(result))
        self.calls.append(_Call(str(func), user_line(), *sizes, self._in_loss))
        return result


def _elements(values: object) -> tuple[int, ...]:
    return tuple(value.numel() for value in tree_leaves(values) if isinstance(value, torch.Tensor))


def mixing_lines(run: Callable[[int, Recorder], None], rows: int) -> tuple[str, ...]:
    """The lines of user code whose operations mix rows. `run(rows, recorder)` runs the step on shapes with that many rows.

    Nothing where the step is another program for another number of rows: then sizes can't be compared.
    """
    recorders = Recorder(), Recorder()
    counts = rows, 2 * rows
    for count, recorder in zip(counts, recorders, strict=True):
        run(count, recorder)
    first, second = (recorder.calls for recorder in recorders)
    if [call.name for call in first] != [call.name for call in second]:
        return ()
    found = (one.source or "unknown line" for one, two in zip(first, second, strict=True) if _mixes(one, two))
    return tuple(dict.fromkeys(found))


def _mixes(one: _Call, two: _Call) -> bool:
    """`two` is the same operation on twice the rows."""
    if one.operands == two.operands or BATCH_NORM in one.name or one.name.startswith(_OF_METADATA):
        return False
    # In the loss a single number is a sum over the rows, or stands beside numbers of each row (the weight of a cross entropy).
    least = 2 if one.in_loss else 1
    return any(after != 2 * before for before, after in zip(one.results, two.results, strict=True) if before >= least)
