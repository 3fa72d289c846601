# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses of torch.nn.functional taken apart: into what they add up over the rows, and what they divide it by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from .errors import ImporterError

#: Losses whose reduction="mean" divides by the number of elements of their reduction="none".
_ELEMENTWISE = {
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
    F.triplet_margin_with_distance_loss,
    F.multilabel_margin_loss,
    F.multilabel_soft_margin_loss,
    F.multi_margin_loss,
}
_CLASSES = (F.cross_entropy, F.nll_loss)


class Reduced(NamedTuple):
    """A loss: `total` is summed over `elements` numbers, and divided by `divisor` or by the 0-dimensional `weight`, if by any."""

    total: torch.Tensor
    elements: int
    divisor: int | None = None
    weight: torch.Tensor | None = None


class ClassWeights:
    """Denominators of cross entropies, each computed once: several losses of one target then have one weight."""

    def __init__(self):
        self._made: list[tuple[tuple, torch.Tensor]] = []

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | float:
        """The summed class weights of the targets that are not ignored, or the rows' number for class probabilities."""
        scores, target = args[0], args[1]
        weight = args[2] if len(args) > 2 else kwargs.get("weight")
        if target.dtype.is_floating_point:
            classes = scores.shape[0] if scores.dim() == 1 else scores.shape[1]
            return scores.numel() // classes
        ignored = kwargs.get("ignore_index", -100)
        for (of, version, by, index), made in self._made:
            if of is target and by is weight and (version, index) == (target._version, ignored):
                return made
        self._made.append(((target, target._version, weight, ignored), _class_weight(target, weight, ignored)))
        return self._made[-1][1]


@torch.no_grad()
def _class_weight(target: torch.Tensor, weight: torch.Tensor | None, ignored: int) -> torch.Tensor:
    valid = target != ignored
    if weight is None:
        return valid.sum().to(torch.float32)
    chosen = weight[torch.where(valid, target, torch.zeros_like(target))]
    # Not in bf16, which has no number for a count of 257.
    wide = torch.float64 if chosen.dtype == torch.float64 else torch.float32
    return torch.where(valid, chosen, torch.zeros_like(chosen)).sum(dtype=wide)


def reduced(func: Callable, args: Sequence[Any], kwargs: Mapping[str, Any], weights: ClassWeights) -> Reduced | None:
    """The call of a loss of torch.nn.functional; None where it is none, or does not reduce.

    torch hands losses over with their leading arguments positional and all options by keyword; the legacy flags mean a reduction of another name.
    """
    if func not in _ELEMENTWISE and func not in _CLASSES:
        return None
    if kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
        return None
    reduction = kwargs.get("reduction", "mean")
    if reduction == "none":
        return None
    # As torch's own check of the name would say it.
    if reduction not in ("mean", "sum") and (func, reduction) != (F.kl_div, "batchmean"):
        return None
    if func in _CLASSES:
        total = func(*args, **{**kwargs, "reduction": "sum"})
        if reduction == "sum":
            return Reduced(total, args[1].numel())
        weight = weights.of(args, kwargs)
        if not isinstance(weight, torch.Tensor):
            return Reduced(total, weight, weight)
        return Reduced(total, args[1].numel(), None, weight)
    if func is F.mse_loss and kwargs.get("weight") is not None and reduction == "mean":
        weight = kwargs["weight"]
        return Reduced(func(*args, **{**kwargs, "reduction": "sum"}), args[0].numel(), None, weight.detach().sum())
    losses = func(*args, **{**kwargs, "reduction": "none"})
    count = {"mean": losses.numel(), "sum": None, "batchmean": args[0].shape[0]}[reduction]
    return Reduced(losses.sum(), losses.numel(), count)


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
