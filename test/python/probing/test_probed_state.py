# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trying rows leaves no trace, and what was found right once is not tried again."""

import contextlib
import random
import time
import warnings

import numpy
import pytest
import torch
import torch.nn.functional as F
from piper.cache import ObjectCache
from piper.probing import Divided, check_rows
from piper.probing.subject import Subject, subject
from piper.probing.trial import Trial
from torch import nn
from typer.testing import CliRunner
from verdicts import verdict

BATCH = torch.randn(8, 6), torch.randint(0, 4, (8,))


class Remembers(nn.Module):
    """Changes everything that it can reach."""

    def __init__(self, copies=True):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 4), nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))
        self.seen, self.count, self.last = [], 0, None
        if not copies:
            # Tensors with a graph can't be copied.
            self.made = self.layer.weight * 2

    def forward(self, x):
        self.calls += 1
        self.count += 1
        self.seen.append(x)
        self.last = x
        random.random(), numpy.random.rand()
        with torch.no_grad():
            self.layer.bias.add_(1e-3)
        return self.norm(self.layer(x)) + 0 * torch.rand(4)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, z, y):
        self.scale *= 1.5
        return F.cross_entropy(z, y) * self.scale


def state(model, loss):
    tensors = [*model.parameters(), *model.buffers(), *loss.buffers()]
    return [t.detach().clone() for t in tensors] + [torch.get_rng_state(), torch.tensor(numpy.random.get_state()[1])]


def test_nothing_changes(monkeypatch):
    ran = []
    output = Subject.output
    monkeypatch.setattr(Subject, "output", lambda self, batch: ran.append(1) or output(self, batch))
    for copies in (True, False):
        for inside in (True, False):
            model, criterion = Remembers(copies), Scale()
            # A loss is a module, or a function that uses one.
            loss_fn = criterion if inside else lambda z, y, c=criterion: c(z, y)
            imported = verdict(nn.Linear(6, 4), F.cross_entropy, BATCH, numbers=False).imported
            before, others = state(model, criterion), (random.getstate(), torch.get_default_dtype())
            modes = [part.training for part in model.modules()]
            with warnings.catch_warnings(), contextlib.suppress(ValueError):
                warnings.simplefilter("ignore")
                check_rows(model, loss_fn, BATCH, imported, Divided(8, 2, 1))
            assert ran
            assert all(torch.equal(a, b) for a, b in zip(before, state(model, criterion), strict=True))
            assert others == (random.getstate(), torch.get_default_dtype())
            assert (model.seen, model.count, model.last) == ([], 0, None)
            assert modes == [part.training for part in model.modules()]
            assert all(p.grad is None for p in model.parameters())


def test_each_call_begins_from_the_same_state():
    model = Remembers()
    with subject(model, F.cross_entropy, torch.float64, False) as copied:
        assert copied.model is not model and copied.model.layer.weight.dtype == torch.float64
        for _ in range(3):
            copied.output(_batch())
            assert copied.model.count == 1 and copied.model.calls == 1 and len(copied.model.seen) == 1


def _batch():
    from piper.importer.inputs import Batch

    return Batch.of((BATCH[0].double(), BATCH[1]))


def test_a_model_that_reads_a_clock_is_not_one_whose_rows_meet():
    class Timed(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (time.perf_counter_ns() % 1e9)

    with pytest.warns(UserWarning, match="a clock that forward or loss reads is what it was at compile"):
        found = verdict(Timed(6, 4), F.cross_entropy, BATCH)
    (said,) = found.words
    assert not found.error and said.endswith("the model gives other numbers each time")


class Weighed(nn.Module):
    """A weight for each row, in a constant of the graph."""

    def __init__(self, weights):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("weights", weights)

    def forward(self, x):
        return self.layer(x) * self.weights[: len(x), None]


def test_a_verdict_is_kept_by_code_and_numbers(tmp_path, monkeypatch):
    cache, calls, taken = ObjectCache(tmp_path), [], []
    see = Trial.see
    monkeypatch.setattr(Trial, "see", lambda self, sizes: calls.append(sizes) or see(self, sizes))
    for weights in (torch.ones(8), torch.ones(8), torch.linspace(0, 1, 8)):
        found = verdict(Weighed(weights), F.cross_entropy, BATCH, cache=cache)
        assert bool(found.imported.coupled) == bool(weights.std() > 0)
        taken.append(len(calls))
    assert taken == [1, 1, 2]
    # What is wrong is found again each time.
    for count in (3, 4):
        assert verdict(nn.Linear(6, 4), lambda z, y: (z - z.roll(1, 0)).pow(2).mean(), BATCH, cache=cache).error
        assert len(calls) == count


def test_the_command_line_hands_it_on(monkeypatch, tmp_path):
    import piper
    from piper import cli

    given = []

    def compile(*_, check_rows, **__):
        given.append(check_rows)
        raise piper.UsageError("far enough")

    monkeypatch.setattr(piper, "compile", compile)
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\ndef build():\n    model = torch.nn.Linear(2, 2)\n"
        "    return model, torch.nn.functional.mse_loss, [(torch.zeros(4, 2), torch.zeros(4, 2))]\n"
    )
    for options in ([], ["--no-check-rows"]):
        CliRunner().invoke(cli.app, ["train", str(file), *options])
    assert given == [True, False]
