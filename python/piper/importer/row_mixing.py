# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds operations that mix the rows of a batch, so that parts of it computed apart give something else than the whole.

The step runs twice on shapes alone, with two numbers of rows. What treats every row by itself has results that grow as the rows do; a sum over the rows has
results that don't, products of rows with rows have results that grow faster. Of what keeps shapes (a roll, a softmax) the dimension tells; of the rest
numbers do (`piper.probing`). A single number that the model makes of its rows mixes them where it meets rows again; where it only becomes part of the loss
the rules of losses know what it is. In the loss, which is a sum over the rows, what is made of all rows mixes them where it meets rows again other than as
the sum that they are divided by, also where that shows in no number of the example (the share of a class that it lacks).
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
#: Operations that keep shapes and lead numbers along dimensions, to the position of these among their arguments.
_LEADING = {
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_softmax", "_log_softmax", "flip"), 1),
    "roll": 2,
}
#: Whose results are sums over what they read, up to a factor.
_SUMS = ("sum", "mean")
#: Of which a sum is that of their results, if one operand is such a sum.
_LINEAR = (
    *("add", "sub", "rsub", "neg", "mul", "div", "_to_copy", "clone", "detach", "alias", "view", "_unsafe_view", "reshape"),
    *("unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "select", "slice", "cat", "stack", *_SUMS),
)  # fmt: skip
#: Make rows that are copies of each other, and keep them so.
_COPYING = {"expand", "repeat", "full", "zeros", "ones"}
_KEEPING = {"expand", "clone", "detach", "alias", "_to_copy", "view", "unsqueeze"}
#: What may be done to a number that rows are divided by: the rules of losses know it.
_OF_DIVISORS = (*_LINEAR, "clamp", "clamp_min", "maximum")


@dataclass(frozen=True)
class _Call:
    name: str
    source: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    #: Sizes of the dimensions along which the operation leads numbers from one place to another, and how far a roll does.
    along: tuple[int, ...]
    shifts: tuple[int, ...]
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
        led = _led(func, args, kwargs or {})
        numbers = self._numbers(operands), self._numbers(results)
        self.calls.append(_Call(str(func), user_line(), *sizes, *led, self._in_loss, *numbers))
        return result

    def _numbers(self, tensors: list[torch.Tensor]) -> tuple[int, ...]:
        return tuple(self._seen.setdefault(id(tensor), (len(self._seen), tensor))[0] for tensor in tensors)


def _led(func: object, args: tuple, kwargs: dict) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`along` and `shifts` of a call."""
    name = _short(str(func))
    if name not in _LEADING:
        return (), ()
    position, shape = _LEADING[name], args[0].shape
    dims = args[position] if len(args) > position else kwargs.get("dim", kwargs.get("dims", ()))
    shifts = args[1] if name == "roll" else ()
    if not isinstance(dims, (tuple, list)):
        return ((shape[dims],) if shape else ()), ()
    # A roll of no dimensions is one of all elements.
    along = tuple(shape[dim] for dim in dims) or (args[0].numel(),)
    return along, tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)


def _short(name: str) -> str:
    """The operation's name without its overload, and without the mark of what changes its operand in place."""
    return name.removeprefix("aten.").partition(".")[0].rstrip("_")


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
    of_loss, orders, copies = _OfLoss(), _Orders(), _Copies()
    for one, two in zip(first, second, strict=True):
        if one.name.startswith((_OF_METADATA, *_OF_SHAPE)):
            continue
        if copies.are_read(one, two):
            continue
        yield from orders.look(one, two)
        if one.in_loss:
            yield from of_loss.look(one, two)
        met = [numbers[read] for read in one.reads if read in numbers]
        if any(count > 1 for count in (*one.results, *two.results)):
            yield from met
        elif met:
            numbers |= dict.fromkeys(one.gives, met[0])
        if one.in_loss or not _mixes(one, two):
            continue
        if max(one.results) == 1:
            numbers |= dict.fromkeys(one.gives, one.source)
        else:
            yield one.source
    yield from (numbers[given] for given in loss if given in numbers)


def _mixes(one: _Call, two: _Call) -> bool:
    """`two` is the same operation on twice the rows."""
    if one.operands == two.operands or BATCH_NORM in one.name:
        return False
    return any(after != 2 * before for before, after in zip(one.results, two.results, strict=True))


class _Copies:
    """Knows tensors whose rows are copies of one that is no row of the batch: to take one of them mixes none (a prompt that is learned, once for all rows)."""

    def __init__(self):
        self._copies: set[int] = set()

    def are_read(self, one: _Call, two: _Call) -> bool:
        """Whether a call on rows and on twice as many takes some of such rows."""
        growing = [n for n, a, b in zip(one.reads, one.operands, two.operands, strict=True) if a != b]
        name = _short(one.name)
        if growing and not self._copies.issuperset(growing):
            return False
        if name in (_COPYING if not growing else _KEEPING) and one.results != two.results:
            self._copies |= set(one.gives)
        return bool(growing) and name in ("slice", "select") and one.results == two.results


class _Orders:
    """Follows in which order tensors have their rows: element i of a turned or rolled one is row sign * i + offset.

    What is turned and turned back again is as it was; rows meet where two orders do.
    """

    def __init__(self):
        # By the numbers of tensors in another order than that of the batch: that, and the line that made it so.
        self._orders: dict[int, tuple[int, int, str]] = {}

    def look(self, one: _Call, two: _Call) -> Iterator[str]:
        """The lines that let rows meet which have different orders, in a call on rows and on twice as many."""
        sizes = zip(one.reads, one.operands, two.operands, strict=True)
        orders = [self._orders.get(number, (1, 0, "")) for number, before, after in sizes if before != after]
        led = [(size, shift) for size, other, shift in _places(one, two) if size != other]
        if led and _short(one.name) not in ("flip", "roll"):
            yield one.source
            return
        if not orders:
            return
        if len({order[:2] for order in orders}) > 1:
            yield next(line for _, _, line in orders if line)
            return
        (sign, offset, line), *_ = orders
        for size, shift in led:
            sign, offset = (-sign, offset - sign) if shift is None else (sign, offset - sign * shift)
            offset, line = offset % size, one.source
        self._orders |= dict.fromkeys(one.gives, (sign, offset, line)) if (sign, offset) != (1, 0) else {}


def _places(one: _Call, two: _Call) -> Iterator[tuple[int, int, int | None]]:
    """Of each dimension that a call goes along, its sizes in both calls and how far it rolls; None: it is turned."""
    shifts = one.shifts if _short(one.name) == "roll" else (None,) * len(one.along)
    return zip(one.along, two.along, shifts, strict=True)


@dataclass(frozen=True)
class _Reduced:
    """What a loss has made of all rows.

    Attributes:
        summed: by sums and what keeps them sums.
        divides: by that and what the rules of divisors know.
        several: not as single numbers, which the rules of losses know, but beside each other (a sum over the rows for each column).
    """

    line: str
    summed: bool
    divides: bool
    several: bool


class _OfLoss:
    """Follows what a loss makes of all rows."""

    def __init__(self):
        self._made: dict[int, _Reduced] = {}

    def look(self, one: _Call, two: _Call) -> Iterator[str]:
        """The lines that mix rows in a call on rows and on twice as many."""
        read = [self._made[number] for number in one.reads if number in self._made]
        name = _short(one.name)
        if one.operands == two.operands and not read or not one.results or BATCH_NORM in one.name:
            return
        if one.results != two.results:
            if read and not self._are_divided(one, name):
                yield read[0].line
            # A single number beside those of each row is the weight of a cross entropy.
            elif any(b >= 2 and a != 2 * b for b, a in zip(one.results, two.results, strict=True)):
                yield one.source
            return
        several = max(one.results) > 1
        if read:
            # A product of two sums is none.
            linear = name not in ("mul", "div") or len(read) == 1 and (name == "mul" or one.reads[0] in self._made)
            summed = linear and name in _LINEAR and all(item.summed for item in read)
            divides = name in _OF_DIVISORS and all(item.divides for item in read)
            made = _Reduced(read[0].line, summed, divides, several and any(item.several for item in read))
        else:
            made = _Reduced(one.source, name in _SUMS, name in _SUMS or "loss" in name, several)
        if made.several and not made.summed:
            yield made.line
        self._made |= dict.fromkeys(one.gives, made)

    def _are_divided(self, one: _Call, name: str) -> bool:
        """Whether rows are divided by a sum over the rows."""
        if name != "div" or len(one.reads) != 2 or one.reads[0] in self._made:
            return False
        return self._made[one.reads[1]].divides
