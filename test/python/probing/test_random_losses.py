# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random losses and models whose rows meet in random ways: what is let through without a word equals plain PyTorch on the whole batch.

PIPER_RANDOM_LOSSES=1000 tries as many of each, with a line for each kind of outcome.
"""

import collections
import os

import torch
from random_losses import CLASSES, RandomLoss, RandomModel, batch, with_auxiliary
from torch import nn
from verdicts import error, verdict

COUNT = int(os.environ.get("PIPER_RANDOM_LOSSES", "25"))
DIVISIONS = [(2, 1), (1, 3), (2, 2), (1, 5), (1, 4)]
OTHERS = 2


def outcomes(make):
    """(what it is, outcome, error on data that the check has not seen) of COUNT models and losses."""
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
        off = max(error(model, loss_fn, result.imported, batch(1000 + seed + i), division) for i in range(OTHERS))
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
