# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds operations that mix the rows of a batch, so that parts of it computed apart give something else than the whole.

The step runs twice on shapes alone, with two numbers of rows. What treats every row by itself has results that grow as the rows do; a sum over the rows has
results that don't, products of rows with rows have results that grow faster. What mixes rows and keeps shapes (a softmax over dim 0)
numbers find (`piper.probing`). A single number that the model makes of its rows mixes them where it meets rows again; where it only becomes part of the loss
the rules of losses know what it is.
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
#: Tensors made after another's shape.
_OF_SHAPE = ("aten.ones_like", "aten.zeros_like", "aten.full_like", "aten.empty_like")


@dataclass(frozen=True)
class _Call:
    name: str
    source: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    in_loss: bool
    #: Which tensors these are, by numbers in the order of their appearance.
    reads: tuple[int, ...]
    gives: tuple[int, ...]


class Recorder(TorchDispatchMode):
    """Notes the sizes of what each operation reads and gives, in elements. `calls` has them in order."""

    def __init__(self):
        super().__init__()
        self.calls: list[_Call] = []
        #: Which tensors the loss is.
        self.loss: tuple[int, ...] = ()
        self._in_loss = False
        # Held, so that their ids stay their own.
        self._seen: dict[int, tuple[int, torch.Tensor]] = {}

    def end(self, loss: object) -> None:
        """`loss` holds the tensors that the step gives."""
        self.loss = self._numbers(_tensors(loss))

    @contextlib.contextmanager
    def inside_loss(self) -> Iterator[None]:
        """Inside it operations belong to the loss, whose value is a sum over the rows."""
        self._in_loss = True
        try:
            yield
        finally:
            self._in_loss = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        operands, results = _tensors([args, kwargs]), _tensors(result)
        sizes = (tuple(tensor.numel() for tensor in tensors) for tensors in (operands, results))
        self.calls.append(
            _Call(str(func), user_line(), *sizes, self._in_loss, self._numbers(operands), self._numbers(results))
        )
        return result

    def _numbers(self, tensors: list[torch.Tensor]) -> tuple[int, ...]:
        return tuple(self._seen.setdefault(id(tensor), (len(self._seen), tensor))[0] for tensor in tensors)


def _tensors(values: object) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def mixing_lines(
    run: Callable[[int, Recorder], None], rows: int, loss_is_known: Callable[[], bool] = lambda: False
) -> tuple[str, ...]:
    """The lines of user code whose operations mix rows. `run(rows, recorder)` runs the step on shapes with that many rows.

    loss_is_known: asked after the runs, whether single numbers of the model that are part of the loss have been judged with that.

    Nothing where the step is another program for another number of rows: then sizes can't be compared.
    """
    recorders = Recorder(), Recorder()
    counts = rows, 2 * rows
    for count, recorder in zip(counts, recorders, strict=True):
        run(count, recorder)
    first, second = (recorder.calls for recorder in recorders)
    if [call.name for call in first] != [call.name for call in second]:
        return ()
    lines = _found(first, second, () if loss_is_known() else recorders[0].loss)
    return tuple(dict.fromkeys(line or "unknown line" for line in lines))


def _found(first: list[_Call], second: list[_Call], loss: tuple[int, ...]) -> Iterator[str]:
    """`loss`: where nothing else judges the single numbers that it consists of."""
    # Single numbers of rows, to the line that made them.
    numbers: dict[int, str] = {}
    for one, two in zip(first, second, strict=True):
        if one.name.startswith((_OF_METADATA, *_OF_SHAPE)):
            continue
        met = [numbers[read] for read in one.reads if read in numbers]
        if any(count > 1 for count in (*one.results, *two.results)):
            yield from met
        elif met:
            numbers |= dict.fromkeys(one.gives, met[0])
        if not _mixes(one, two):
            continue
        if max(one.results) == 1:
            numbers |= dict.fromkeys(one.gives, one.source)
        else:
            yield one.source
    yield from (numbers[given] for given in loss if given in numbers)


def _mixes(one: _Call, two: _Call) -> bool:
    """`two` is the same operation on twice the rows."""
    if one.operands == two.operands or BATCH_NORM in one.name or one.name.startswith(_OF_METADATA):
        return False
    # In the loss a single number is a sum over the rows, or stands beside numbers of each row (the weight of a cross entropy).
    least = 2 if one.in_loss else 1
    return any(after != 2 * before for before, after in zip(one.results, two.results, strict=True) if before >= least)
