# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random losses and models whose rows meet in random ways: what is let through without a word equals plain PyTorch on the whole batch.

PIPER_RANDOM_LOSSES=1000 tries as many of each, with a line for each kind of outcome.
"""

import collections
import os

import torch
from executor import train
from random_losses import CLASSES, ROWS, RandomLoss, RandomModel, batch, with_auxiliary
from torch import nn
from verdicts import verdict

COUNT = int(os.environ.get("PIPER_RANDOM_LOSSES", "25"))
DIVISIONS = [(2, 1), (1, 3), (2, 2), (1, 5), (1, 4)]
#: Data that the check has not seen.
OTHERS = 2


def whole(model, loss_fn, data):
    result = loss_fn(model(data[0]), data[1])
    loss = result if isinstance(result, torch.Tensor) else result[0] / result[1]
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return loss.detach(), dict(zip(names, gradients, strict=True))


def in_parts(imported, data, division):
    pieces = []
    for replica in torch.arange(ROWS).tensor_split(division[0]):
        for rows in replica.tensor_split(division[1]):
            pieces.append((data[0][rows], {name: value[rows] for name, value in data[1].items()}))
    outcome = train(imported, pieces)
    loss = outcome.loss_sum / outcome.loss_weight if imported.loss.divide else outcome.loss_sum
    return loss, outcome.gradients


def error(model, loss_fn, imported, division, seed):
    """The largest error in loss or gradients, in relation to the largest value; 0 where PyTorch itself gives no number."""
    data = batch(seed)
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


def outcomes(make):
    """(what it is, outcome, error) of COUNT models and losses."""
    found = []
    for seed in range(COUNT):
        torch.manual_seed(seed)
        model, loss_fn, text, options = make(seed)
        division = DIVISIONS[seed % len(DIVISIONS)]
        try:
            result = verdict(model, loss_fn, batch(seed), *division, **options)
        except Exception as failure:  # noqa: BLE001  (torch refuses the random program)
            found.append((text, f"raises {type(failure).__name__}", 0.0))
            continue
        if result.error:
            found.append((text, "refused on numbers" if result.tried else "refused by the graph", 0.0))
            continue
        off = max(error(model, loss_fn, result.imported, division, 1000 + seed + i) for i in range(OTHERS))
        found.append((text, "silent" if result.silent else "warned", off))
    kinds = collections.Counter(kind for _, kind, _ in found)
    print("\n", dict(kinds), "warned though equal:", sum(k == "warned" and off < 1e-4 for _, k, off in found))
    return found


def wrong(found):
    return [(text, off) for text, kind, off in found if kind == "silent" and off > 1e-4]


def losses(seed):
    loss_fn = RandomLoss(seed)
    return nn.Linear(5, CLASSES), loss_fn, loss_fn.text, {"loss_reduction": loss_fn.reduction}


def models(seed):
    model = RandomModel(seed)
    return model, with_auxiliary, model.text, {}


def test_losses_are_right_or_not_silent():
    found = outcomes(losses)
    assert wrong(found) == []
    kinds = {kind for _, kind, _ in found}
    assert {"silent", "refused on numbers"} <= kinds


def test_models_are_right_or_not_silent():
    found = outcomes(models)
    assert wrong(found) == []
    kinds = {kind for _, kind, _ in found}
    assert {"silent", "warned"} <= kinds
