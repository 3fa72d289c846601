# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the user's loss into a pair (sum, weight), which adds up over microbatches and replicas where a mean does not.

The loss of a global batch is Σ sum / Σ weight over its parts, so the backward of each part runs on its sum, and one
division by Σ weight follows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from .errors import ImporterError

REDUCTIONS = ("mean_rows", "sum")

#: Losses whose reduction="mean" divides by the number of elements of their reduction="none".
_ELEMENTWISE_MEANS = {
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.kl_div,
    F.poisson_nll_loss,
    F.gaussian_nll_loss,
    F.soft_margin_loss,
    F.margin_ranking_loss,
    F.hinge_embedding_loss,
    F.cosine_embedding_loss,
    F.triplet_margin_loss,
    F.multilabel_margin_loss,
    F.multilabel_soft_margin_loss,
    F.multi_margin_loss,
}
_MEANS = {torch.mean, torch.Tensor.mean}
_SUMS = {torch.sum, torch.Tensor.sum}


@dataclass(frozen=True)
class LossForm:
    """How a loss combines over parts of a batch.

    Attributes:
        kind: "pair" (the user returned it), "mean" (recognised), "mean_rows" (declared), "sum" (recognised or declared:
            no division), or "scalar" (nothing
            is known of it: its sum is the value itself and its weight 1).
        divide: whether the global loss is Σ sum / Σ weight; otherwise it is Σ sum.
        splittable: whether the batch may be divided over microbatches or replicas.
        advice: what to do where it may not; empty otherwise.
        elements_per_row: for a recognised mean over elements, how many there are per row of the batch. It has to be the
            same for every number of rows: a mean over something that does not grow with the batch can't be combined.
    """

    kind: str
    divide: bool
    splittable: bool
    advice: str = ""
    elements_per_row: float | None = None


_UNKNOWN = LossForm(
    "scalar",
    True,
    False,
    "the loss is a scalar that is not recognised as a mean, so parts of a batch can't be combined: return a pair "
    "(sum, weight) from loss_fn, return the"
    " result of a torch loss or of .mean() itself, or declare loss_reduction='mean_rows' (a mean over the rows of "
    "dim 0) or 'sum'",
)


def refuse_dropped_weight(func: Callable) -> None:
    """torch 2.13's F.l1_loss does not hand its weight over to a TorchFunctionMode, which would leave it out silently.

    Raises:
        ImporterError: the call of `func` that a mode is being asked about is one of F.l1_loss with a weight.
    """
    frame = sys._getframe(1) if func is F.l1_loss else None
    while frame is not None:
        if frame.f_code is F.l1_loss.__code__:
            if frame.f_locals.get("weight") is not None:
                raise ImporterError(
                    "F.l1_loss with a weight can't be traced by torch 2.13: write ((output - target).abs() * weight)"
                )
            return
        frame = frame.f_back


class _MeanRecognizer(TorchFunctionMode):
    """Replaces each recognised mean by sum / weight and remembers which tensor came of which pair."""

    def __init__(self):
        super().__init__()
        # With the version of the mean, which counts what was done to it in place.
        self._pairs: list[tuple[torch.Tensor, int, _Pair]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        refuse_dropped_weight(func)
        pair = _as_pair(func, args, kwargs)
        if pair is None:
            return func(*args, **kwargs)
        result = pair.total if pair.weight is None else pair.total / pair.weight
        self._pairs.append((result, result._version, pair))
        return result

    def pair_of(self, result: torch.Tensor) -> _Pair | None:
        found = (pair for mean, version, pair in self._pairs if mean is result and mean._version == version)
        return next(found, None)


@dataclass(frozen=True)
class _Pair:
    """total / weight is the recognised mean; weight None: total itself is the loss. `count`: the number of elements,
    where that is the weight.
    """

    total: torch.Tensor
    weight: torch.Tensor | None
    count: int | None = None


def _mean_of(elements: torch.Tensor, total: torch.Tensor | None = None, count: int | None = None) -> _Pair:
    count = elements.numel() if count is None else count
    return _Pair(elements.sum() if total is None else total, _number(elements, count), count)


def _as_pair(func, args, kwargs) -> _Pair | None:
    if func in _MEANS and len(args) == 1 and not kwargs:
        return _mean_of(args[0])
    if func in _SUMS and len(args) == 1 and not kwargs:
        return _Pair(args[0].sum(), None)
    if func not in _ELEMENTWISE_MEANS and func not in (F.cross_entropy, F.nll_loss):
        return None
    # torch hands losses over with their leading arguments positional and all options by keyword; the legacy flags mean
    # a reduction of another name.
    if kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
        return None
    reduction = kwargs.get("reduction", "mean")
    if reduction == "sum":
        return _Pair(func(*args, **kwargs), None)
    if func is F.kl_div and reduction == "batchmean":
        return _mean_of(args[0], func(*args, **{**kwargs, "reduction": "sum"}), args[0].shape[0])
    if reduction != "mean":
        return None
    if func in (F.cross_entropy, F.nll_loss):
        return _Pair(func(*args, **{**kwargs, "reduction": "sum"}), _class_weight(args, kwargs))
    if func is F.mse_loss and kwargs.get("weight") is not None:
        return _Pair(func(*args, **{**kwargs, "reduction": "sum"}), kwargs["weight"].sum())
    return _mean_of(func(*args, **{**kwargs, "reduction": "none"}))


def _number(like: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full(
        (), float(value), dtype=like.dtype if like.dtype.is_floating_point else torch.float32, device=like.device
    )


@torch.no_grad()
def _class_weight(args, kwargs) -> torch.Tensor:
    """The denominator of torch's mean: the summed class weights of the targets that are not ignored, or the rows'
    number for class probabilities.
    """
    scores, target = args[0], args[1]
    weight = args[2] if len(args) > 2 else kwargs.get("weight")
    if target.dtype.is_floating_point:
        classes = scores.shape[0] if scores.dim() == 1 else scores.shape[1]
        return _number(scores, scores.numel() / classes)
    valid = target != kwargs.get("ignore_index", -100)
    if weight is None:
        return valid.sum().to(scores.dtype)
    chosen = weight[torch.where(valid, target, torch.zeros_like(target))]
    return torch.where(valid, chosen, torch.zeros_like(chosen)).sum().to(scores.dtype)


def loss_pair(
    loss_fn: Callable, output, target, reduction: str | None, rows: int | None
) -> tuple[torch.Tensor, torch.Tensor, LossForm]:
    """Runs `loss_fn(output, target)` and gives (sum, weight, form), sum and weight as 0-dimensional tensors, weight
    without gradient.

    Args:
        loss_fn: returns (sum, weight), or a scalar tensor.
        reduction: None, or what the user declares of a scalar: "mean_rows" or "sum".
        rows: rows of dim 0 of this part of the batch; None where it has no such dimension.

    Raises:
        ImporterError: the result is neither a pair nor a scalar tensor, or `reduction` is unknown or does not apply.
    """
    if reduction is not None and reduction not in REDUCTIONS:
        raise ImporterError(f"expected loss_reduction to be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    recognizer = _MeanRecognizer()
    with recognizer:
        result = loss_fn(output, target)
    if isinstance(result, (tuple, list)):
        return checked_pair(result, reduction)
    if not isinstance(result, torch.Tensor) or result.dim() != 0:
        got = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, torch.Tensor) else type(result).__name__
        raise ImporterError(f"expected loss_fn to return a scalar tensor or a pair (sum, weight), got {got}")
    if reduction == "sum":
        return result, _number(result, 1), LossForm("sum", False, True)
    if reduction == "mean_rows":
        if rows is None:
            raise ImporterError(
                "loss_reduction='mean_rows' needs a target or batch_dims that tell the rows of the batch"
            )
        return result * rows, _number(result, rows), LossForm("mean_rows", True, True)
    pair = recognizer.pair_of(result)
    if pair is None or (pair.count is not None and rows is not None and pair.count % rows):
        return result, _number(result, 1), _UNKNOWN
    if pair.weight is None:
        return pair.total, _number(pair.total, 1), LossForm("sum", False, True)
    per_row = pair.count / rows if pair.count is not None and rows else None
    return pair.total, pair.weight.detach(), LossForm("mean", True, True, elements_per_row=per_row)


def checked_pair(result, reduction: str | None = None) -> tuple[torch.Tensor, torch.Tensor, LossForm]:
    """A pair that the user's loss gave. Raises ImporterError if it is none."""
    if reduction is not None:
        raise ImporterError(
            f"loss_reduction={reduction!r} does not apply to a loss_fn that returns a pair (sum, weight)"
        )
    if len(result) != 2 or not isinstance(result[0], torch.Tensor) or result[0].dim() != 0:
        raise ImporterError(
            f"expected loss_fn to return a scalar tensor or a pair (sum, weight), got {len(result)} values; the sum "
            "has to be a scalar tensor"
        )
    total, weight = result
    if not isinstance(weight, torch.Tensor):
        weight = _number(total, weight)
    if weight.dim() != 0:
        raise ImporterError(f"expected the weight of the loss to be a scalar, got shape {tuple(weight.shape)}")
    return total, weight.detach().to(total.dtype), LossForm("pair", True, True)


@dataclass(frozen=True)
class Term:
    """One part of a loss, of one part of the batch. `weight` None: numerators of parts add up to the term itself."""

    numerator: torch.Tensor
    weight: torch.Tensor | None


def loss_terms(
    loss_fn: Callable, output, target, reduction: str | None, rows: int | None, form: LossForm | None = None
) -> tuple[list[Term], LossForm]:
    """`loss_fn(output, target)` of one part of the batch as terms, by the rule `form` that the whole loss follows (None: as this part alone shows it)."""
    total, weight, found = loss_pair(loss_fn, output, target, reduction, rows)
    return [Term(total, weight if (form or found).divide else None)], found


def combined(parts: Sequence[Sequence[Term]]) -> torch.Tensor:
    """The loss of the whole batch from the terms of its parts: the sum over terms of Σ numerators / Σ weights."""
    total = torch.zeros(())
    for of_parts in zip(*parts, strict=True):
        value = sum(term.numerator for term in of_parts)
        if of_parts[0].weight is not None:
            value = value / sum(term.weight for term in of_parts)
        total = total + value
    return total
