# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the user's loss into (numerator, weight) pairs, which add up over microbatches and replicas where a mean does not.

The loss of a global batch is a sum of terms Σ numerator / Σ weight over its parts. A program computes one pair: the backward of each part runs on its
numerator, and one division by Σ weight follows. Where terms have different weights, the pair's numerator holds each term divided by its own weight,
which the host computes of the whole batch before the step (loss_weights.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import loss_rules
from .affine import Piece, Pieces
from .errors import ImporterError
from .lines import place_of
from .loss_form import LossForm, Rule
from .loss_rules import Trait, traits_of, weights_of
from .recognizer import LossRecognizer

REDUCTIONS = ("mean_rows", "sum")


def own_loss(output: Any, target: Any = None) -> torch.Tensor:
    """The loss that a model computes itself: its 0-dimensional output, or what it calls `loss`.

    Raises:
        ImporterError: the output has none.
    """
    found = output
    if not isinstance(output, torch.Tensor):
        found = getattr(output, "loss", None)
        if found is None and hasattr(output, "keys") and "loss" in output:
            found = output["loss"]
    if isinstance(found, torch.Tensor) and found.dim() == 0:
        return found
    got = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(output).__name__
    raise ImporterError(
        f"without loss_fn the model has to give its own loss, a scalar or an output with .loss or ['loss'], got {got}: give it what it "
        "computes the loss from (labels=...), or give a loss_fn"
    )


def where_is(loss_fn: Callable, model: nn.Module | None = None) -> str:
    """The line of a loss, or of the `model` that computes it itself, as "file:line"; of those of torch their name."""
    return place_of(model, "model") if loss_fn is own_loss and model is not None else place_of(loss_fn, "loss_fn")


@dataclass(frozen=True)
class LossValue:
    """What a loss gave: a scalar with its pieces, or a pair."""

    result: torch.Tensor
    weight: torch.Tensor | None
    pieces: Pieces
    reduction: str | None
    weight_pieces: Pieces = ()

    def traits(self) -> tuple[Trait, ...]:
        """What tells how it combines."""
        return traits_of(self.pieces)


def evaluate(
    recognizer: LossRecognizer, loss_fn: Callable, output: Any, target: Any, reduction: str | None
) -> LossValue:
    """`loss_fn(output, target)` while `recognizer` looks on; it has to have looked on from the model's first operation where the model computes the loss.

    Raises:
        ImporterError: the result is neither a pair nor a scalar tensor, or `reduction` is unknown or does not apply.
    """
    if reduction is not None and reduction not in REDUCTIONS:
        raise ImporterError(f"expected loss_reduction to be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    recognizer.enter_loss(output, target)
    with recognizer:
        result = call_loss(loss_fn, output, target)
    if isinstance(result, (tuple, list)):
        total, weight = checked_pair(result, reduction, where_is(loss_fn))
        of_weight = recognizer.pieces_of(result[1]) if isinstance(result[1], torch.Tensor) else ()
        return LossValue(total, weight, recognizer.pieces_of(total), reduction, of_weight)
    if not isinstance(result, torch.Tensor) or result.dim() != 0:
        got = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, torch.Tensor) else type(result).__name__
        raise ImporterError(f"expected loss_fn to return a scalar tensor or a pair (sum, weight), got {got}")
    return LossValue(result, None, recognizer.pieces_of(result), reduction)


def call_loss(loss_fn: Callable, output: Any, target: Any) -> Any:
    """The one place at which a loss is called (userfile.py knows it)."""
    return loss_fn(output, target)


def checked_pair(result: Sequence, reduction: str | None = None, where: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """A pair that the user's loss gave. Raises ImporterError if it is none."""
    at = f"{where}: " if where else ""
    if reduction is not None:
        raise ImporterError(
            f"{at}loss_reduction={reduction!r} does not apply to a loss_fn that returns a pair (sum, weight)"
        )
    if len(result) != 2 or not isinstance(result[0], torch.Tensor) or result[0].dim() != 0:
        raise ImporterError(
            f"{at}expected loss_fn to return a scalar tensor or a pair (sum, weight), got {len(result)} values; the sum "
            "has to be a scalar tensor"
        )
    total, weight = result
    if not isinstance(weight, torch.Tensor):
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise ImporterError(f"{at}expected the weight of the loss to be a number, got {type(weight).__name__}")
        weight = _number(total, weight)
    if weight.dim() != 0:
        raise ImporterError(f"{at}expected the weight of the loss to be a scalar, got shape {tuple(weight.shape)}")
    if weight.requires_grad:
        raise ImporterError(
            f"{at}loss_fn returned two scalars that both have a gradient, and the second of a pair (sum, weight) is a number that the sum is divided "
            "by: return their sum (loss + aux) where both are losses, or the weight's .detach()"
        )
    return total, weight.to(_wide(total.dtype))


def form_of(value: LossValue, where: str) -> LossForm:
    """The form where the batch is not divided: one number of rows is all there is. `where`: the loss's line."""
    declared = _declared(value)
    return declared or loss_rules.of_one_part(value.traits(), where)


def settled_form(found: Sequence[tuple[int, LossValue]], where: str) -> LossForm:
    """The form by values at two numbers of rows. `where`: the loss's line."""
    (rows, value), (more, other) = found
    form = loss_rules.settle(value.traits(), other.traits(), (rows, more), where)
    declared = _declared(value)
    if declared is None:
        return form
    # Of a declared sum, and that of a pair, no more than this is known here: numbers tell the rest.
    if declared.kind == "pair" and _is_mean(
        loss_rules.settle(traits_of(value.weight_pieces), traits_of(other.weight_pieces), (rows, more), where)
    ):
        advice = (
            f"{where}: the second of the pair that loss_fn returns is a mean over the rows, and that of a pair (sum, weight) is a number that adds up over "
            "parts of a batch: return the loss alone"
        )
        return LossForm(declared.kind, declared.divide, False, advice)
    if declared.kind in ("pair", "sum") and _is_mean(form):
        what = "the first of the pair that loss_fn returns" if declared.kind == "pair" else "the loss declared as a sum"
        advice = f"{where}: {what} is a mean over the rows, which does not add up over parts of a batch: return the sum over the rows (reduction='sum')"
        return LossForm(declared.kind, declared.divide, False, advice)
    return declared


def _is_mean(form: LossForm) -> bool:
    return form.splittable and bool({rule.kind for rule in form.rules} & {"rows", "weight"})


def _declared(value: LossValue) -> LossForm | None:
    if value.weight is not None:
        return LossForm("pair", True, True)
    if value.reduction == "sum":
        return LossForm("sum", False, True)
    return LossForm("mean_rows", True, True, weight_per_row=1.0) if value.reduction == "mean_rows" else None


@dataclass(frozen=True)
class Term:
    """A summand of the loss of one part of a batch: numerator / max(weight + offset, floor). `weight` None: numerators of parts add up to the summand."""

    numerator: torch.Tensor
    weight: torch.Tensor | None
    offset: float = 0.0
    floor: float | None = None


def loss_terms(
    loss_fn: Callable,
    output: Any,
    target: Any,
    reduction: str | None,
    rows: int | None,
    form: LossForm | None = None,
    recognizer: LossRecognizer | None = None,
) -> tuple[list[Term], LossForm]:
    """`loss_fn(output, target)` of one part of the batch as terms, by the form that the whole loss has (None: that of an undivided batch).

    recognizer: has looked on while the model made `output`; where the model computes its own loss it has to.
    """
    value = evaluate(recognizer or LossRecognizer(_parameters(loss_fn)), loss_fn, output, target, reduction)
    form = form or form_of(value, where_is(loss_fn))
    return terms_of(value, form, rows), form


def step_value(
    call: Callable[[], Any],
    own: Iterable[torch.Tensor],
    batch: Any,
    loss_fn: Callable,
    target: Any,
    reduction: str | None,
) -> LossValue:
    """The loss of `call()`, which runs a model with the tensors `own` on those of `batch`: also one that the model computes itself."""
    recognizer = LossRecognizer([*own, *_parameters(loss_fn)], batch)
    with recognizer:
        output = call()
    return evaluate(recognizer, loss_fn, output, target, reduction)


def _parameters(loss_fn: Callable) -> Iterable[torch.Tensor]:
    return loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ()


def terms_of(value: LossValue, form: LossForm, rows: int | None) -> list[Term]:
    """A value as terms, by a form."""
    if value.weight is not None:
        return [Term(value.result, value.weight)]
    if form.kind == "mean_rows":
        return [Term(_floating(value.result) * _checked_rows(rows), _number(value.result, rows))]
    if form.kind == "scalar" or not form.rules:
        return [Term(value.result, _number(value.result, 1) if form.divide else None)]
    if len(form.rules) != len(value.pieces):
        raise ImporterError("the loss has other summands for this part of the batch than for the others")
    return [_term(piece, rule, form, rows) for piece, rule in zip(value.pieces, form.rules, strict=True)]


def _term(piece: Piece, rule: Rule, form: LossForm, rows: int | None) -> Term:
    if rule.kind == "sum":
        return Term(_times(piece.base, piece.factor), None)
    if rule.kind == "weight":
        if piece.weight is None:
            line = piece.line or next((trait.line for trait in form.traits or () if trait.line), "")
            raise ImporterError(
                f"the loss ({line}): a summand is divided by a sum that has a gradient, so parts of a batch can't be combined: detach the divisor "
                "where its gradient is not meant, or compile without dividing the batch"
            )
        numerator = _times(piece.base, piece.factor)
        offset, floor = form.weights[rule.weight]
        return Term(numerator, piece.weight.base.to(_wide(numerator.dtype)), offset, floor)
    count = rows or 1
    if rule.kind == "rows":
        # Of a mean this is the same number for every count of rows.
        numerator = _times(piece.base, piece.factor * count)
    else:
        # A product also where it is one by one: programs for several numbers of rows have the same operations.
        numerator = _floating(piece.base) * (piece.factor * count)
    return Term(numerator, _number(numerator, count))


def combined(parts: Sequence[Sequence[Term]]) -> torch.Tensor:
    """The loss of the whole batch from the terms of its parts: the sum over terms of Σ numerators / max(Σ weights + offset, floor)."""
    total = torch.zeros(())
    for of_parts in zip(*parts, strict=True):
        value = sum(term.numerator for term in of_parts)
        first = of_parts[0]
        if first.weight is not None:
            weight = sum(term.weight for term in of_parts) + first.offset
            value = value / (weight if first.floor is None else weight.clamp(min=first.floor))
        total = total + value
    return total


def graph_pair(
    value: LossValue, form: LossForm, rows: int | None, total_rows: int | None, factors: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(sum, weight) of one part of the batch, as a program computes them.

    factors: where `form.host_weights`: whether anything counts (1 or 0), then the number of rows of the whole batch over each weight of it.
    """
    part = (rows or 1) / (total_rows or rows or 1)
    terms = terms_of(value, form, rows)
    if not form.divide:
        # Weights of all parts add up to 1: the loss is the sum itself.
        constants = [rule.kind == "constant" for rule in form.rules] or [False]
        total = sum(
            t.numerator * (1.0 / (total_rows or rows or 1)) if c else t.numerator
            for t, c in zip(terms, constants, strict=True)
        )
        return total, _number(total, part)
    if len(terms) == 1 and not form.host_weights:
        (term,) = terms
        if form.rules and form.rules[0].kind == "rows":
            # The count of elements, so that a plain mean is a plain sum.
            (piece,) = value.pieces
            return _times(piece.base, piece.factor * piece.elements), _number(piece.base, piece.elements)
        weight = term.weight if not term.offset else term.weight + term.offset * part
        return term.numerator, weight
    return _several(terms, form, rows, total_rows, factors, part)


def _several(terms, form, rows, total_rows, factors, part) -> tuple[torch.Tensor, torch.Tensor]:
    if not form.host_weights and form.weights:
        weight = next(t.weight for t, rule in zip(terms, form.rules, strict=True) if rule.kind == "weight")
        weight = weight + form.weights[0][0] * part if form.weights[0][0] else weight
        numerators = [
            t.numerator if rule.kind == "weight" else t.numerator * (1.0 / (rows or 1)) * weight.to(t.numerator.dtype)
            for t, rule in zip(terms, form.rules, strict=True)
        ]
        return sum(numerators), weight
    numerators = []
    for term, rule in zip(terms, form.rules, strict=True):
        if rule.kind == "weight":
            numerators.append(term.numerator * factors[1 + rule.weight].to(term.numerator.dtype))
        else:
            numerators.append(_times(term.numerator, total_rows or 1) if rule.kind == "sum" else term.numerator)
    total = sum(numerators)
    weight = _number(total, rows or 1)
    return total, weight if factors is None else weight * factors[0].to(weight.dtype)


def weights_to_share(value: LossValue) -> tuple[torch.Tensor, ...]:
    """The weights of one part of the batch, as 0-dimensional float32 tensors."""
    return tuple(weight.base.to(torch.float32) for weight in weights_of(value.pieces))


def _checked_rows(rows: int | None) -> int:
    if rows is None:
        raise ImporterError("loss_reduction='mean_rows' needs a target or batch_dims that tell the rows of the batch")
    return rows


def _times(value: torch.Tensor, factor: float) -> torch.Tensor:
    value = _floating(value)
    return value if abs(factor - 1.0) < 1e-12 else value * factor


def _floating(value: torch.Tensor) -> torch.Tensor:
    return value.to(_wide(value.dtype))


def _number(like: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full((), float(value), dtype=_wide(like.dtype), device=like.device)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type of sums and weights: bf16 has no number for a count of 257."""
    return torch.float64 if dtype == torch.float64 else torch.float32
