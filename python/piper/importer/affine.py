# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of a loss as sums of pieces that are known to add up over parts of a batch.

A loss of training code is nearly always affine in means and sums over the rows: c1 * mean + c2 * (sum / count) + c3. Each such
summand is a `Piece`: a number times a tensor, divided by a weight or not. What is done to the loss that is linear is done to its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

#: Summed over the rows; the same for every part of the batch; of unknown origin, from the model or from the loss.
SUM, CONSTANT, MODEL_SCALAR, UNKNOWN = "sum", "constant", "scalar of the model", "unknown"


@dataclass(frozen=True)
class Weight:
    """What a piece is divided by: max(base + offset, floor), where `base`, a 0-dimensional tensor without gradient, adds up over the rows.

    `elements`: how many numbers were added up to `base`.
    """

    base: torch.Tensor
    elements: int
    offset: float = 0.0
    floor: float | None = None


@dataclass(frozen=True)
class Piece:
    """`factor` * `base` / `weight`.

    Attributes:
        kind: how it behaves over parts of the batch (above). An element of a larger tensor has none yet: it is SUM once it is added up.
        factor: a number of the user's code; it may hold the number of rows.
        base: a tensor.
        elements: how many numbers were added up to `base` or to an element of it; 0 where nothing was.
        weight: None: nothing divides it.
        line: of the user's code that added it up.
        number: the value of `base` where it is a number of the user's code: a fake tensor has none.
    """

    kind: str
    factor: float
    base: torch.Tensor
    elements: int = 0
    weight: Weight | None = None
    line: str = ""
    number: float | None = None


Pieces = tuple[Piece, ...]


def leaf(tensor: torch.Tensor, kind: str = SUM, line: str = "") -> Pieces:
    """A tensor that nothing else is known of."""
    return (Piece(kind, 1.0, tensor, line=line),)


def scaled(pieces: Sequence[Piece], factor: float) -> Pieces:
    """Times a number."""
    return tuple(replace(piece, factor=piece.factor * factor) for piece in pieces)


def mapped(pieces: Sequence[Piece], function: Callable[[torch.Tensor], torch.Tensor]) -> Pieces:
    """After a linear function that treats every part of the batch alike: a view, a conversion, a product with a constant."""
    return tuple(replace(piece, base=function(piece.base), number=None) for piece in pieces)


def summed(pieces: Sequence[Piece], add: Callable[[torch.Tensor], torch.Tensor], line: str) -> Pieces:
    """After `add`, a sum over some or all dimensions."""
    return tuple(
        replace(piece, base=add(piece.base), elements=piece.elements or piece.base.numel(), line=piece.line or line)
        for piece in pieces
    )


def divided(pieces: Sequence[Piece], by: Sequence[Piece], floor: float | None) -> Pieces | None:
    """By a scalar that adds up over the rows, and has `by` as its pieces; None if that gives no pieces."""
    weight = _weight(by, floor)
    if weight is None or any(piece.weight is not None for piece in pieces):
        return None
    factor, weight = weight
    return tuple(replace(piece, factor=piece.factor / factor, weight=weight) for piece in pieces)


def _weight(pieces: Sequence[Piece], floor: float | None) -> tuple[float, Weight] | None:
    """The number and the weight whose product is the sum of the pieces."""
    sums = [piece for piece in pieces if piece.kind == SUM]
    constants = [piece for piece in pieces if piece.kind == CONSTANT]
    if len(sums) != 1 or len(sums) + len(constants) != len(pieces) or sums[0].weight is not None or not sums[0].factor:
        return None
    values = [number_of(piece) for piece in constants]
    if None in values or sums[0].base.dim() or sums[0].base.requires_grad:
        return None
    factor = sums[0].factor
    offset = sum(values) / factor
    return factor, Weight(sums[0].base, sums[0].elements, offset, None if floor is None else floor / factor)


def number_of(piece: Piece) -> float | None:
    """The value of a constant that is a number of the user's code."""
    return None if piece.number is None or piece.weight is not None else piece.factor * piece.number
