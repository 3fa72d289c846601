# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling says of a model and a loss whose batch is divided, without compiling them: import, and rows tried on numbers. And what is true."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from executor import train
from piper.errors import UsageError
from piper.importer import import_model
from piper.importer.imported import Imported
from piper.importer.inputs import Batch, describe
from piper.importer.loss import own_loss
from piper.probing import Divided, check_rows
from piper.rows import part_rows


@dataclass
class Verdict:
    """`error` where it is refused, by the graph or (`tried`) by numbers; else `words`: warnings, and where rows meet."""

    error: str = ""
    tried: bool = False
    words: tuple[str, ...] = ()
    imported: Imported | None = None

    @property
    def silent(self) -> bool:
        return not self.error and not self.words


def verdict(
    model, loss_fn, batch, replicas=2, microbatches=1, loss_reduction=None, cache=None, numbers=True
) -> Verdict:
    """`loss_fn` None: the model computes its own."""
    own = loss_fn is None
    loss_fn, batch = (own_loss, Batch.without_target(batch)) if own else (loss_fn, batch)
    _, _, rows = describe(Batch.of(batch), None)
    tried = False
    try:
        imported = import_model(
            model, loss_fn, batch, rows=part_rows(rows, replicas, microbatches), loss_reduction=loss_reduction
        )
        if not imported.loss.splittable:
            return Verdict(imported.loss.advice)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tried = True
            if numbers:
                check_rows(
                    model, loss_fn, batch, imported, Divided(rows, replicas, microbatches), loss_reduction, cache, own
                )
    except UsageError as error:
        return Verdict(str(error), tried)
    words = [*(str(warning.message) for warning in caught), *imported.mixing, *imported.coupled]
    return Verdict("", tried, tuple(words), imported)


def whole(model, loss_fn, data):
    """Loss and gradients of plain PyTorch on the whole batch."""
    batch = Batch.of(data)
    result = loss_fn(model(*batch.args, **batch.kwargs), batch.target)
    loss = result if isinstance(result, torch.Tensor) else result[0] / result[1]
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return loss.detach(), dict(zip(names, gradients, strict=True))


def in_parts(imported, data, division):
    """Loss and gradients of the imported step, part by part."""
    batch = Batch.of(data)
    _, _, count = describe(batch, None)
    pieces = []
    for replica in torch.arange(count).tensor_split(division[0]):
        for rows in replica.tensor_split(division[1]):
            pieces.append(batch.map(lambda path, value, r=rows: value[r] if imported.inputs[path].split else value))
    outcome = train(imported, pieces)
    loss = outcome.loss_sum / outcome.loss_weight if imported.loss.divide else outcome.loss_sum
    return loss, outcome.gradients


def error(model, loss_fn, imported, data, division):
    """The largest error in loss or gradients, in relation to the largest value; 0 where PyTorch itself gives no number."""
    loss, gradients = whole(model, loss_fn, data)
    if not loss.isfinite() or any(g is not None and not g.isfinite().all() for g in gradients.values()):
        return 0.0
    got, found = in_parts(imported, data, division)
    scale = max([1e-3, *(g.abs().max().item() for g in gradients.values() if g is not None)])
    errors = [(got - loss).abs().item() / max(abs(loss.item()), scale)]
    for name, gradient in gradients.items():
        mine = found.get(name)
        if gradient is not None or mine is not None:
            gap = (0 if mine is None else mine) - (0 if gradient is None else gradient)
            errors.append(gap.abs().max().item() / scale)
    return max(float("inf") if value != value else value for value in errors)
