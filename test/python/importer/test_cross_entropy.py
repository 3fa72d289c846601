# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cross-entropy by way of maximum and log-sum gives torch's loss and gradients, and keeps no log-probabilities."""

import pytest
import torch
import torch.nn.functional as F
import zoo
from executor import train
from piper.importer import import_model
from piper.importer.graphs import calls
from torch import nn

WEIGHTS = torch.tensor([0.2, 1.0, 0.7, 2.0, 0.1])
#: Shape of the scores, loss of scores and target.
CASES = {
    "mean": ((7, 5), F.cross_entropy),
    "weighted": ((7, 5), lambda o, t: F.cross_entropy(o, t, weight=WEIGHTS, ignore_index=1)),
    "none": ((7, 5), lambda o, t: (F.cross_entropy(o, t, reduction="none") * t).sum() / 3),
    "inner mean": ((7, 5), lambda o, t: (F.cross_entropy(o, t, ignore_index=2) * 2).sum()),
    "picture": ((3, 5, 2, 3), lambda o, t: F.cross_entropy(o, t, weight=WEIGHTS, reduction="sum")),
    "two": ((7, 5), lambda o, t: F.cross_entropy(o, t) + F.nll_loss(F.log_softmax(o * 2, -1), t)),
}


class Scores(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(shape[1:]) + 0.5)

    def forward(self, x):
        return x * self.scale


def operations(imported):
    functions = [f for family in imported.families.values() for f in family.members.values()]
    return [str(node.target) for function in functions for node in calls(function.graph)]


@pytest.mark.parametrize("name", CASES)
def test_equals_torch(name):
    shape, loss_fn = CASES[name]
    model, x = Scores(shape), torch.randn(shape) * 3
    target = torch.randint(0, 5, (shape[0], *shape[2:]))
    batch = {"args": (x,), "kwargs": {}, "target": target}
    imported = import_model(model, loss_fn, batch, loss_reduction=None)
    names = operations(imported)
    assert "piper.cross_entropy_forward.default" in names and "piper.cross_entropy_backward.default" in names
    assert not any("log_softmax" in name for name in names)
    outcome = train(imported, [batch])
    loss = loss_fn(model(x), target)
    loss.backward()
    torch.testing.assert_close(outcome.loss_sum / outcome.loss_weight, loss.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outcome.gradients["scale"], model.scale.grad, rtol=1e-5, atol=1e-6)


def test_log_probabilities_that_others_read_stay():
    """A loss that reads them beside cross-entropy is lowered as torch has it."""

    def loss_fn(out, target):
        logarithms = F.log_softmax(out, -1)
        return F.nll_loss(logarithms, target) + logarithms.exp().square().mean()

    model, x = Scores((7, 5)), torch.randn(7, 5)
    batch = {"args": (x,), "kwargs": {}, "target": torch.randint(0, 5, (7,))}
    imported = import_model(model, loss_fn, batch)
    assert not any("cross_entropy" in name for name in operations(imported))
    outcome = train(imported, [batch])
    loss_fn(model(x), batch["target"]).backward()
    torch.testing.assert_close(outcome.gradients["scale"], model.scale.grad, rtol=1e-5, atol=1e-6)


def test_what_is_kept_of_a_row():
    """Of all values as large as the scores only the scores themselves are saved."""
    model, batch = nn.Linear(4, 5, bias=False), zoo.regression((4,), ())
    batch = {**batch, "target": torch.randint(0, 5, (6,))}
    imported = import_model(model, F.cross_entropy, batch)
    saved = imported.member(imported.nodes[0], 6).saved_results
    assert sorted(spec.shape for spec in saved if spec.shape) == [(6, 1), (6, 1), (6, 5)]
