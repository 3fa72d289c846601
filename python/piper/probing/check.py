# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`check_rows`: whether a model and its loss divide as the imported step says, tried on a few rows of the example batch.

The graph decides what is combined and how; numbers only refuse or warn. The cost is a few calls of model and loss in plain PyTorch.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..cache import ObjectCache
from ..importer.errors import ImporterError
from ..importer.imported import Imported
from ..importer.inputs import Batch
from ..notices import warn_user
from ..rows import division
from . import verdicts, work
from .losses import NotTriedError, Rule
from .places import line_of
from .subject import subject
from .trial import LossSeen, Seen, Trial

_log = logging.getLogger(__name__)

#: Bytes of parameters above which nothing is tried.
LARGEST = 4 << 30
#: Operations that trying may take: of the strategy's own division; of a few rows with gradients; of these without.
OWN_DIVISION, WITH_GRADIENTS, AT_MOST = 1e9, 5e9, 2e10
#: Parts above which the strategy's own division is not tried at once.
MOST_PARTS = 8

_UNTRIED = "it was not tried on numbers whether loss and model divide over the rows of the batch, so only what the graph shows of it is known"
_RULES = {
    "pair": "as sum of the sums over sum of the weights",
    "mean": "as a mean",
    "mean_rows": "as a mean over the rows, as loss_reduction='mean_rows' declares",
    "sum": "as a sum over the rows",
}


@dataclass(frozen=True)
class Divided:
    """A batch of `rows` rows, divided over replicas and microbatches."""

    rows: int
    replicas: int
    microbatches: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each part."""
        return tuple(
            size for replica in division(self.rows, self.replicas) for size in division(replica, self.microbatches)
        )


def check_rows(
    model: nn.Module,
    loss_fn: Callable,
    batch: Any,
    imported: Imported,
    divided: Divided,
    reduction: str | None = None,
    cache: ObjectCache | None = None,
    own_loss: bool = False,
) -> None:
    """Tries whether parts of the batch make up the whole; notes in `imported.coupled` where rows meet in the model.

    Neither model nor loss nor random state changes. What can't be tried (the batch is on meta or holds NaN, the code does not run on so few rows) is said in a
    warning. What was found right is kept in `cache`.

    Raises:
        ImporterError: the loss does not divide as its rule says; names its line.
    """
    start = time.monotonic()
    example = Batch.of(batch)
    split = {name for name, described in imported.inputs.items() if described.split}
    reason = _obstacle(model, example, split)
    seen = None
    rule = Rule(imported.loss, reduction)
    key = verdicts.key_of(imported, loss_fn, divided, reduction, own_loss) if cache is not None else ""
    # Of an import that several compilations share.
    imported.coupled = ()
    if not reason:
        if cache is not None and verdicts.is_known(cache, key):
            return
        effort = work.per_row(imported)
        seen, reason = _tried(model, loss_fn, example, split, rule, own_loss, divided, effort)
    _log.info("rows checked in %.3f s", time.monotonic() - start)
    if seen is None:
        warn_user(f"{_UNTRIED}: {reason}")
        return
    if seen.loss.refused:
        raise ImporterError(_refusal(loss_fn, rule, seen))
    if seen.loss.difference is not None:
        warn_user(_doubt(loss_fn, seen.loss))
    if seen.untried:
        warn_user(f"{_UNTRIED}: {seen.untried}")
    imported.coupled = (seen.meets,) if seen.meets else ()
    if cache is not None and not (imported.coupled or seen.loss.difference or seen.untried):
        verdicts.keep(cache, key)


def _obstacle(model: nn.Module, example: Batch, split: set[str]) -> str:
    tensors = {path: value for path, value in example.leaves().items() if isinstance(value, torch.Tensor)}
    for path, value in tensors.items():
        if value.device.type != "cpu":
            return f"'{path}' of the example batch is on {value.device.type}"
        if path in split and (value.is_floating_point() and bool(value.isnan().any())):
            return f"'{path}' of the example batch holds NaN"
    parameters = list(model.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return "the model is not on the CPU"
    if sum(parameter.numel() * parameter.element_size() for parameter in parameters) > LARGEST:
        return f"the model has more than {LARGEST >> 30} GiB of parameters"
    return ""


def _tried(model, loss_fn, example, split, rule, own_loss, divided, effort) -> tuple[Seen | None, str]:
    """What was seen, or why nothing was."""
    plan = _plan(divided, effort)
    if not plan.first and not plan.own:
        return _loss_tried(model, loss_fn, example, split, rule, own_loss, divided)
    reason = ""
    for dtype, stir in ((torch.float64, True), (torch.float64, False), (None, False)):
        try:
            with subject(model, loss_fn, dtype, stir) as copied:
                trial = Trial(copied, rule, example, split, own_loss, plan.gradients, not plan.first)
                return _see(trial, plan), ""
        except Exception as error:  # noqa: BLE001  (the user's code raises anything)
            reason = str(error) if isinstance(error, NotTriedError) else f"{type(error).__name__}: {error}"
    return None, reason.splitlines()[0] if reason else "unknown"


def _loss_tried(model, loss_fn, example, split, rule, own_loss, divided) -> tuple[Seen | None, str]:
    """Of a model that would take too long to run, the loss alone."""
    too_large = "the model is too large to be run for it"
    if own_loss:
        return None, too_large
    reason = ""
    for dtype in (torch.float64, None):
        for sizes in _few(divided.sizes):
            try:
                with subject(nn.Identity(), loss_fn, dtype, False) as copied:
                    seen = Trial(copied, rule, example, split).see_loss(model, sizes)
                return dataclasses.replace(seen, untried=f"the model is not tried, only its loss: {too_large}"), ""
            except Exception as error:  # noqa: BLE001
                reason = (
                    str(error)
                    if isinstance(error, NotTriedError)
                    else f"{too_large}, and its loss fails on other numbers: {error}"
                )
    return None, reason.splitlines()[0]


@dataclass(frozen=True)
class _Plan:
    """Divisions to try: the first of `first` that the user's code runs on, then `own`, the strategy's, if that fails or shows a difference."""

    first: Sequence[tuple[int, ...]]
    own: tuple[int, ...]
    gradients: bool


def _plan(divided: Divided, effort: float) -> _Plan:
    sizes = divided.sizes
    if len(sizes) <= MOST_PARTS and 6 * divided.rows * effort <= OWN_DIVISION:
        return _Plan((), sizes, True)
    # Two parts of the strategy's sizes, which cost what two microbatches do.
    own = sizes if len(sizes) == 2 else (max(sizes), min(sizes))
    first = [few for few in _few(sizes) if 2 * sum(few) * effort <= AT_MOST]
    gradients = bool(first) and 6 * sum(first[0]) * effort <= WITH_GRADIENTS
    return _Plan(first, own if 2 * sum(own) * effort <= AT_MOST else (), gradients)


def _few(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Parts of few rows, of uneven sizes; of one row only where the strategy has such."""
    rows = sum(sizes)
    if max(sizes) == 1:
        return [(1,) * min(rows, 3)]
    if min(sizes) == 1:
        return [(1, 2)]
    return [few for few in ((2, 3), (2, 4), (2, 2)) if sum(few) <= rows]


def _see(trial: Trial, plan: _Plan) -> Seen:
    seen, failed = None, None
    for sizes in plan.first:
        try:
            seen = trial.see(sizes)
            break
        except Exception as error:  # noqa: BLE001
            failed = error
    if seen is not None and (seen.loss.difference is None and not seen.meets or not plan.own):
        return seen
    if not plan.own:
        raise failed
    try:
        own = trial.see(plan.own)
    except Exception:
        if seen is None:
            raise
        return seen
    # A pair has to add up for any division.
    return seen if seen is not None and seen.loss.refused and seen.loss.is_pair else own


def _refusal(loss_fn: Callable, rule: Rule, seen: Seen) -> str:
    sizes = seen.loss.sizes or seen.sizes
    parts = ", ".join(map(str, sizes[:8])) + (", ..." if len(sizes) > 8 else "")
    how = f" ({seen.loss.how})" if seen.loss.how else ""
    return (
        f"{_named(loss_fn)}: the loss of a whole batch is not that of its parts, combined {_RULES.get(rule.form.kind, 'by their terms')}: for parts of "
        f"{parts} rows{how} {seen.loss.difference}; return a pair (sum, weight) of which both add up over rows (where rows belong together, make them one "
        "row), or compile without dividing the batch"
    )


def _doubt(loss_fn: Callable, loss: LossSeen) -> str:
    return (
        f"{_named(loss_fn)}: the loss of the example is that of its parts, and it would not be {loss.how}, where {loss.difference}: if there will be such data, "
        "return a pair (sum, weight) of which both add up over rows"
    )


def _named(loss_fn: Callable) -> str:
    function = getattr(loss_fn, "func", loss_fn)
    if not hasattr(function, "__code__"):
        kind = type(function)
        function = kind.forward if isinstance(function, nn.Module) else kind.__call__
    return line_of(function) or f"loss_fn {getattr(loss_fn, '__name__', type(loss_fn).__name__)}"
