# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Follows a loss from the first sum over rows to its value, and so finds the pieces that it is the sum of (affine.py).

What is recognised costs nothing: the pieces' tensors stand beside those of the user's code, and whichever are not used are removed from the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import affine, mean_losses
from .affine import CONSTANT, MODEL_SCALAR, SUM, UNKNOWN, Pieces, leaf
from .capture import tree_leaves, user_line

_HOMES = (torch, torch.Tensor, torch.nn.functional)


def _functions(*names: str) -> frozenset[Callable]:
    return frozenset(getattr(home, name) for home in _HOMES for name in names if hasattr(home, name))


_ADD = _functions("add", "__add__", "__radd__", "add_", "__iadd__")
_SUBTRACT = _functions("sub", "subtract", "__sub__", "sub_", "__isub__")
_SUBTRACT_FROM = _functions("rsub", "__rsub__")
_MULTIPLY = _functions("mul", "multiply", "__mul__", "__rmul__", "mul_", "__imul__")
_DIVIDE = _functions("div", "divide", "true_divide", "__truediv__", "__div__", "div_", "__itruediv__", "__idiv__")
_NEGATE = _functions("neg", "negative", "__neg__", "neg_")
_SUM = _functions("sum")
_MEAN = _functions("mean")
_DOT = _functions("dot", "inner", "vdot")
_STACK = _functions("stack", "cat", "concat", "concatenate", "hstack", "vstack")
_CLAMP = _functions("clamp", "clip", "clamp_min", "clamp_", "clamp_min_")
_MAXIMUM = _functions("maximum", "max")
_ITEM = _functions("__getitem__")
#: Give their first argument's elements, all of them, in any form.
_SAME = _functions(
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "flatten",
    "ravel",
    "contiguous",
    "clone",
    "to",
    "float",
    "double",
    "half",
    "bfloat16",
    "type",
    "type_as",
    "cpu",
    "detach",
    "permute",
    "transpose",
    "t",
    "__pos__",
    "positive",
)
#: Give a tensor's parts.
_APART = _functions("__iter__", "unbind", "chunk", "split", "tensor_split")
_HOOKS = _functions("register_hook", "retain_grad")
_MADE_OF_A_NUMBER = _functions("tensor", "as_tensor", "scalar_tensor")


class LossRecognizer(TorchFunctionMode):
    """Knows the pieces of the scalars that are computed while it is the mode.

    constants: tensors that are the same for every part of the batch, as parameters are. batch: those that differ.
    """

    def __init__(self, constants: Iterable[torch.Tensor] = (), batch: Any = ()):
        super().__init__()
        # Values hold their tensor, so that its id stays its own; its state tells what was done to it since (_state).
        self._pieces: dict[int, tuple[torch.Tensor, tuple, Pieces]] = {}
        self._items: dict[int, tuple[torch.Tensor, tuple, list[Pieces]]] = {}
        #: Where scalars were made.
        self._lines: dict[int, tuple[torch.Tensor, str]] = {}
        self._floors: dict[int, tuple[torch.Tensor, tuple, tuple[Pieces, float]]] = {}
        self._constants = {id(tensor): tensor for tensor in constants}
        self._varying: dict[int, torch.Tensor] = {}
        self._add_batch(batch)
        self._class_weights = mean_losses.ClassWeights()
        self._of_model: dict[int, torch.Tensor] = {}
        self._in_loss = False

    def enter_loss(self, output: Any, target: Any) -> None:
        """What follows is the loss, of a model with this output and of this target."""
        self._in_loss = True
        self._of_model = {id(value): value for value in _tensors(output) if not value.dim()}
        self._add_varying(output)
        self._add_batch(target)

    def _add_batch(self, values: Any) -> None:
        # A single number has no rows: every part of the batch has the same.
        self._constants |= {id(value): value for value in _tensors(values) if not value.dim()}
        self._add_varying(values)

    def _add_varying(self, values: Any) -> None:
        self._varying |= {id(value): value for value in _tensors(values) if id(value) not in self._constants}

    def pieces_of(self, value: torch.Tensor) -> Pieces:
        """The pieces of a tensor."""
        found = _noted(self._pieces, value)
        if found is not None:
            return found
        if self._is_constant(value):
            return leaf(value, CONSTANT)
        if value.dim():
            return leaf(value)
        is_of_model = id(value) in self._of_model or not self._in_loss
        return leaf(value, MODEL_SCALAR if is_of_model else UNKNOWN, self._line_of(value))

    def _line_of(self, value: torch.Tensor) -> str:
        held = self._lines.get(id(value))
        return held[1] if held is not None and held[0] is value else ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _HOOKS and args:
            # A hook sees this tensor's gradient, not those of the pieces.
            self._pieces.pop(id(args[0]), None)
        mean_losses.refuse_dropped_weight(func)
        rule = _RULES.get(func) if args else None
        # Of what is changed in place, as it was before.
        before = [self._operand(value) for value in args] if rule is not None else []
        loss = mean_losses.reduced(func, args, kwargs, self._class_weights)
        result = func(*args, **kwargs)
        scalars = [value for value in _tensors(result) if not value.dim()]
        if scalars:
            line = user_line()
            self._lines |= {id(value): (value, line) for value in scalars}
        if func in _APART:
            return self._note_parts(func, args, result)
        if not isinstance(result, torch.Tensor):
            return result
        # What was known of a tensor that the call changed in place; a trace does not count versions.
        for table in (self._pieces, self._items, self._floors):
            table.pop(id(result), None)
        if loss is not None:
            self._note(result, _of_loss(loss))
        elif rule is not None:
            self._note(result, rule(self, _Call(func, args, kwargs, before, result)))
        self._note_constant(args, kwargs, result)
        return result

    def _note_parts(self, func: Callable, args: Sequence[Any], result: Any) -> Any:
        """The parts into which a tensor was taken, which are what its elements are."""
        parts = list(result)
        items = self._items_of(args[0])
        for index, part in enumerate(parts):
            self._note_constant(args[:1], {}, part)
            # Of a vector of scalars, if they are taken one by one.
            if items is not None and len(parts) == len(items) and not part.dim():
                self._note(part, items[index])
        return iter(parts) if func is torch.Tensor.__iter__ else type(result)(parts)

    def _note(self, result: torch.Tensor, pieces: Pieces | None) -> None:
        if pieces is not None:
            self._pieces[id(result)] = (result, _state(result), pieces)

    def _operand(self, value: Any) -> Pieces | float | None:
        if isinstance(value, torch.Tensor):
            return self.pieces_of(value)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number else None

    def _note_constant(self, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> None:
        if all(map(self._is_constant, _tensors([args, kwargs]))):
            self._constants[id(result)] = result
            return
        self._constants.pop(id(result), None)  # changed in place by what is none
        self._varying[id(result)] = result

    def _is_constant(self, value: torch.Tensor) -> bool:
        if self._constants.get(id(value)) is value or isinstance(value, torch.nn.Parameter):
            return True
        # A tensor that nothing has computed here is one that the code closes over. Custom functions go unseen.
        return self._varying.get(id(value)) is not value and value.grad_fn is None and not value.requires_grad

    def _items_of(self, value: torch.Tensor) -> list[Pieces] | None:
        return _noted(self._items, value)

    # The rules: each gives the pieces of the call's result, or None where nothing is known of them.

    def _add(self, call: _Call) -> Pieces | None:
        return self._sum_of_two(call, (1.0, 1.0))

    def _subtract(self, call: _Call) -> Pieces | None:
        return self._sum_of_two(call, (1.0, -1.0))

    def _subtract_from(self, call: _Call) -> Pieces | None:
        return self._sum_of_two(call, (-1.0, 1.0))

    def _sum_of_two(self, call: _Call, signs: tuple[float, float]) -> Pieces | None:
        alpha = call.kwargs.get("alpha", 1)
        self._add_to_items(call, (signs[0], signs[1] * alpha) if isinstance(alpha, (int, float)) else signs)
        if len(call.before) != 2 or set(call.kwargs) - {"alpha"} or not isinstance(alpha, (int, float)):
            return None
        found: list[affine.Piece] = []
        for value, sign in zip(call.before, (signs[0], signs[1] * alpha), strict=True):
            if value is None:
                return None
            pieces = _of_number(value, call.result) if isinstance(value, float) else value
            # Where elements of a larger tensor and scalars meet, the sum has one more of the scalars for each row.
            if any(piece.base.dim() != call.result.dim() for piece in pieces):
                return None
            found += affine.scaled(pieces, sign)
        # Of elements nothing is known but how they are scaled.
        is_plain = call.result.dim() and all(abs(piece.factor) == 1 and piece.weight is None for piece in found)
        return None if is_plain else tuple(found)

    def _add_to_items(self, call: _Call, signs: tuple[float, float]) -> None:
        """Scalars beside each other, plus as many constants or further scalars."""
        values = call.args[:2]
        if call.result.dim() != 1 or not any(isinstance(v, torch.Tensor) and self._items_of(v) for v in values):
            return
        operands = [self._each(value, call.result) for value in values]
        if len(operands) == 2 and None not in operands:
            first, second = ([affine.scaled(p, sign) for p in of] for of, sign in zip(operands, signs, strict=True))
            found = [a + b for a, b in zip(first, second, strict=True)]
            self._items[id(call.result)] = (call.result, _state(call.result), found)

    def _each(self, value: Any, like: torch.Tensor) -> list[Pieces] | None:
        """The pieces of each element of a vector of scalars."""
        count = like.numel()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return [_of_number(float(value), like)] * count
        if not isinstance(value, torch.Tensor):
            return None
        items = self._items_of(value)
        if items is not None or not self._is_constant(value):
            return items if items is not None and value.shape == like.shape else None
        if value.shape == like.shape:
            return [leaf(element, CONSTANT) for element in value.unbind()]
        return [self.pieces_of(value)] * count if not value.dim() else None

    def _multiply(self, call: _Call) -> Pieces | None:
        if len(call.before) != 2 or None in call.before or call.kwargs:
            return None
        for one, other in ((0, 1), (1, 0)):
            pieces, value = call.before[one], call.args[other]
            if isinstance(pieces, float):
                continue
            number = self._known_number(call.before[other])
            if number is not None:
                return affine.scaled(pieces, number)
            if self._is_constant(value):
                self._note_items(call, one, lambda base, by: base * by, value)
                return None if call.is_plain(one) else affine.mapped(pieces, lambda base, by=value: base * by)
        # Scalars that add up, times elements: linear in neither alone.
        return None

    def _note_items(self, call: _Call, of: int, function: Callable, by: torch.Tensor) -> None:
        items = self._items_of(call.args[of])
        if items is None or call.result.shape != call.args[of].shape or by.shape not in ((), call.result.shape):
            return
        values = [by] * len(items) if not by.dim() else by.flatten().unbind()
        found = [affine.mapped(i, lambda base, v=v: function(base, v)) for i, v in zip(items, values, strict=True)]
        self._items[id(call.result)] = (call.result, _state(call.result), found)

    def _divide(self, call: _Call) -> Pieces | None:
        if len(call.before) != 2 or None in call.before or call.kwargs.get("rounding_mode") is not None:
            return None
        pieces, by = call.before
        if isinstance(pieces, float):
            return None
        number, value = self._known_number(by), call.args[1]
        if number is not None:
            return affine.scaled(pieces, 1.0 / number) if number else None
        if self._is_constant(value):
            self._note_items(call, 0, lambda base, by: base / by, value)
            return None if call.is_plain(0) else affine.mapped(pieces, lambda base: base / value)
        if value.dim() or value.requires_grad:
            return None
        held = _noted(self._floors, value)
        if held is not None:
            return affine.divided(pieces, *held)
        return affine.divided(pieces, by, None)

    def _negate(self, call: _Call) -> Pieces | None:
        return affine.scaled(call.before[0], -1.0)

    def _sum(self, call: _Call) -> Pieces | None:
        value, pieces = call.args[0], call.before[0]
        if set(call.kwargs) - {"dim", "keepdim", "dtype", "axis"}:
            return None
        items = self._items_of(value)
        if items is not None:
            return tuple(piece for pieces in items for piece in pieces) if not call.result.dim() else None
        if not value.dim():
            return pieces
        if any(piece.base.shape != value.shape for piece in pieces):
            return None
        return affine.summed(pieces, lambda base: torch.sum(base, *call.args[1:], **call.kwargs), user_line())

    def _mean(self, call: _Call) -> Pieces | None:
        pieces = self._sum(call)
        count = call.args[0].numel() // max(call.result.numel(), 1)
        return None if pieces is None or not count else affine.scaled(pieces, 1.0 / count)

    def _dot(self, call: _Call) -> Pieces | None:
        if call.result.dim() or call.args[0].dim() != 1:
            return None
        kind = CONSTANT if all(map(self._is_constant, call.args[:2])) else SUM
        (piece,) = leaf(call.result, kind, user_line())
        return (replace(piece, elements=call.args[0].numel()),)

    def _stack(self, call: _Call) -> Pieces | None:
        parts = call.args[0]
        if not isinstance(parts, (tuple, list)):
            return None
        # Of a batch of one row any tensor may have one element: those that nothing is known of are rows.
        known = [
            isinstance(p, torch.Tensor) and p.numel() == 1 and (not p.dim() or id(p) in self._pieces) for p in parts
        ]
        if all(known):
            found = [affine.mapped(self.pieces_of(part), lambda base: base.reshape(())) for part in parts]
            self._items[id(call.result)] = (call.result, _state(call.result), found)
        return None

    def _item(self, call: _Call) -> Pieces | None:
        items = self._items_of(call.args[0])
        return items[call.args[1]] if items is not None and type(call.args[1]) is int else None

    def _same(self, call: _Call) -> Pieces | None:
        value, result = call.args[0], call.result
        items = self._items_of(value)
        if items is not None and result.shape == value.shape:
            self._items[id(result)] = (result, _state(result), items)
            return None
        if result.numel() != value.numel() or call.is_plain(0) and result.dim():
            return None
        # A number of elements may become one with a fraction, not the reverse.
        if value.is_floating_point() and not result.is_floating_point() or result.dtype == torch.bool:
            return None
        if any(piece.base.shape != value.shape for piece in call.before[0]):
            return None
        pieces = affine.mapped(call.before[0], lambda base: call.func(base, *call.args[1:], **call.kwargs))
        return tuple(replace(new, number=old.number) for new, old in zip(pieces, call.before[0], strict=True))

    def _clamp(self, call: _Call) -> Pieces | None:
        floor = call.args[1] if len(call.args) > 1 else call.kwargs.get("min")
        has_maximum = len(call.args) > 2 and call.args[2] is not None or call.kwargs.get("max") is not None
        if not has_maximum:
            self._note_floor(call, 0, floor)
        return None

    def _maximum(self, call: _Call) -> Pieces | None:
        if len(call.before) == 2 and None not in call.before and not call.kwargs:
            for of, other in ((0, 1), (1, 0)):
                if isinstance(call.before[of], tuple):
                    self._note_floor(call, of, self._known_number(call.before[other]))
        return None

    def _note_floor(self, call: _Call, of: int, floor: Any) -> None:
        if isinstance(floor, torch.Tensor):
            floor = self._known_number(self.pieces_of(floor))
        if isinstance(floor, (int, float)) and not call.result.dim():
            self._floors[id(call.result)] = (call.result, _state(call.result), (call.before[of], float(floor)))

    def _made(self, call: _Call) -> Pieces | None:
        if call.result.dim() or not isinstance(call.args[0], (int, float)):
            return None
        return (replace(leaf(call.result, CONSTANT)[0], number=float(call.args[0])),)

    def _known_number(self, value: Pieces | float) -> float | None:
        if isinstance(value, float):
            return value
        if len(value) != 1 or value[0].kind != CONSTANT or value[0].base.dim():
            return None
        return affine.number_of(value[0])


@dataclass(frozen=True)
class _Call:
    """A call of a function that a rule is about; `before` are the pieces of its operands, or numbers."""

    func: Callable
    args: Sequence[Any]
    kwargs: dict[str, Any]
    before: Sequence[Pieces | float | None]
    result: torch.Tensor

    def is_plain(self, index: int) -> bool:
        """Whether nothing is known of an operand."""
        pieces = self.before[index]
        return (
            len(pieces) == 1 and pieces[0].base is self.args[index] and pieces[0].factor == 1 and not pieces[0].weight
        )


def _of_loss(loss: mean_losses.Reduced) -> Pieces:
    (piece,) = leaf(loss.total, SUM, user_line())
    weight = None if loss.weight is None else affine.Weight(loss.weight, loss.elements)
    return (replace(piece, elements=loss.elements, factor=1.0 / (loss.divisor or 1), weight=weight),)


def _of_number(value: float, like: torch.Tensor) -> Pieces:
    if not value:
        return ()  # sum() of a list begins with it
    base = torch.ones((), dtype=torch.float32, device=like.device)
    return (replace(leaf(base, CONSTANT)[0], factor=value, number=1.0),)


_RULES: dict[Callable, Callable] = {
    function: rule
    for functions, rule in (
        (_ADD, LossRecognizer._add),
        (_SUBTRACT, LossRecognizer._subtract),
        (_SUBTRACT_FROM, LossRecognizer._subtract_from),
        (_MULTIPLY, LossRecognizer._multiply),
        (_DIVIDE, LossRecognizer._divide),
        (_NEGATE, LossRecognizer._negate),
        (_SUM, LossRecognizer._sum),
        (_MEAN, LossRecognizer._mean),
        (_DOT, LossRecognizer._dot),
        (_STACK, LossRecognizer._stack),
        (_CLAMP, LossRecognizer._clamp),
        (_MAXIMUM, LossRecognizer._maximum),
        (_ITEM, LossRecognizer._item),
        (_SAME, LossRecognizer._same),
        (_MADE_OF_A_NUMBER, LossRecognizer._made),
    )
    for function in functions
}


def _state(tensor: torch.Tensor) -> tuple[int, bool]:
    """Differs after a change in place, and outside of a function of the user's own with a backward: what its forward computes has no gradient inside it."""
    return tensor._version, tensor.requires_grad


def _noted(table: dict[int, tuple[torch.Tensor, tuple, Any]], value: torch.Tensor) -> Any:
    """What a table says of a tensor, if it is still what it was; or None."""
    found = table.get(id(value))
    return found[2] if found is not None and found[0] is value and found[1] == _state(value) else None


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(_plain(values)) if isinstance(value, torch.Tensor)]


def _plain(values: Any) -> Any:
    """Values whose tensors `tree_leaves` finds: dataclasses are none of torch's containers."""
    if isinstance(values, (list, tuple)) and type(values) in (list, tuple):
        return [_plain(value) for value in values]
    return vars(values) if dataclasses.is_dataclass(values) and not isinstance(values, type) else values
